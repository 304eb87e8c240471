set local role daybook_owner;

-- Each rejection of a key used again for different work. A rejection that is repeated leaves one event, and so one row.
create table daybook.view_conflict (
    position                bigint      not null,
    rejected_at             timestamptz not null,
    bound_at                timestamptz,
    expires_at              timestamptz,
    existing_job_id         uuid        not null,
    key_digest              text        not null collate "C",
    scope                   text        not null,
    key_preview             text        not null,
    queue                   text        not null,
    type                    text        not null,
    mode                    text        not null,
    existing_mode           text        not null,
    fields                  text[]      not null,
    request_digest          text        not null,
    existing_request_digest text        not null,
    constraint view_conflict_pkey primary key (position)
);

create index view_conflict_key
    on daybook.view_conflict (key_digest, position);

create index view_conflict_scope
    on daybook.view_conflict (scope, position);

grant select, insert, update, delete on daybook.view_conflict to daybook_relay;
grant select on daybook.view_conflict to daybook_operator;

comment on table daybook.view_conflict is 'Each recorded rejection of a key that was used again for different work.';
comment on column daybook.view_conflict.position is 'Position of the event.';
comment on column daybook.view_conflict.rejected_at is 'When it was decided, by the ledger''s clock.';
comment on column daybook.view_conflict.bound_at is 'When the key was bound to the existing job.';
comment on column daybook.view_conflict.expires_at is 'When that binding ends.';
comment on column daybook.view_conflict.existing_job_id is 'The job that the key stands for.';
comment on column daybook.view_conflict.key_digest is 'What people see of the key''s hash: its first twelve hex digits.';
comment on column daybook.view_conflict.queue is 'Queue of the rejected request.';
comment on column daybook.view_conflict.type is 'Type of the rejected request.';
comment on column daybook.view_conflict.mode is 'Mode of the rejected request.';
comment on column daybook.view_conflict.existing_mode is 'Mode of the binding.';
comment on column daybook.view_conflict.fields is 'Names of the fields that differ, sorted; never their values.';
comment on column daybook.view_conflict.request_digest is 'Digest of the rejected request, in hex.';
comment on column daybook.view_conflict.existing_request_digest is 'Digest of the request that owns the key, in hex.';
