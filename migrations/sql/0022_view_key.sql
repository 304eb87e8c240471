set local role daybook_owner;

-- What became of each key. The digest leads the primary key, so that one index serves the fold, which goes by
-- the hash, and the operator, who has the first digits of the digest and may not see the hash.
create table daybook.view_key (
    key_hash          bytea       not null,
    key_digest        text        not null collate "C"
        generated always as (left(encode(key_hash, 'hex'), 12)) stored,
    job_id            uuid,
    first_decision_at timestamptz,
    last_decision_at  timestamptz,
    expires_at        timestamptz,
    ended_at          timestamptz,
    accepted          bigint      not null,
    replaced          bigint      not null,
    non_replaceable   bigint      not null,
    conflicts         bigint      not null,
    first_position    bigint      not null,
    last_position     bigint      not null,
    scope             text        not null,
    key_preview       text        not null,
    mode              text,
    last_outcome      text,
    ended_as          text,
    constraint view_key_pkey primary key (key_digest, key_hash),
    constraint view_key_hash_bytes check (octet_length(key_hash) = 32)
)
with (fillfactor = 85);

-- Newest keys first, of one scope or of all. Neither column ever changes, so updates of a row stay on its page.
create index view_key_scope
    on daybook.view_key (scope, first_position);

create index view_key_first_position
    on daybook.view_key (first_position);

grant select, insert, update, delete on daybook.view_key to daybook_relay;
-- All but the hash.
grant select (
    key_digest, job_id, first_decision_at, last_decision_at, expires_at, ended_at, accepted, replaced,
    non_replaceable, conflicts, first_position, last_position, scope, key_preview, mode, last_outcome, ended_as
) on daybook.view_key to daybook_operator;

comment on table daybook.view_key is
    'One row per key: what it stands for and what was decided about it. Operators may read every column but key_hash.';
comment on column daybook.view_key.key_hash is 'The whole hash. Not readable to operators.';
comment on column daybook.view_key.key_digest is 'What people see of the hash: its first twelve hex digits.';
comment on column daybook.view_key.job_id is 'The job that the key stands for, or stood for last.';
comment on column daybook.view_key.first_decision_at is 'When a request with this key was first decided, replays aside.';
comment on column daybook.view_key.last_decision_at is 'When a request with this key was last decided, replays aside.';
comment on column daybook.view_key.expires_at is
    'When the last binding ends. Once that is past, the key is free, also while ended_at is still null.';
comment on column daybook.view_key.ended_at is
    'When the last binding was found expired, or was released; null as long as neither has been recorded.';
comment on column daybook.view_key.accepted is 'How many jobs were accepted under this key.';
comment on column daybook.view_key.replaced is 'How often a debounced request replaced a pending job''s.';
comment on column daybook.view_key.non_replaceable is 'How many debounced requests were refused.';
comment on column daybook.view_key.conflicts is 'How many different requests were rejected.';
comment on column daybook.view_key.first_position is 'Position of the first event of this key.';
comment on column daybook.view_key.last_position is 'Position of the last event of this key.';
comment on column daybook.view_key.mode is 'Mode of the last binding: idempotency, debounce or throttle.';
comment on column daybook.view_key.last_outcome is 'accepted, replaced, non_replaceable or conflict_rejected.';
comment on column daybook.view_key.ended_as is 'expired or released; null while ended_at is.';
