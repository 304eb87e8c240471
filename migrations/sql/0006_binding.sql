set local role daybook_owner;

-- Key → job. The primary key arbitrates between two requests that arrive at once.
--
-- During a rotation of secrets one key has one row per secret of the ring it was bound with. The row under the
-- secret that was current is the binding; the others are aliases, which only point to it. Whoever takes a binding
-- away takes its aliases with it: other_hashes lists them.
create table daybook.binding (
    key_hash       bytea       not null,
    job_id         uuid        not null,
    bound_at       timestamptz not null,
    expires_at     timestamptz not null,
    run_at         timestamptz,
    window_ms      bigint      not null,
    replaced       integer     not null default 0,
    mode           text        not null,
    scope          text        not null,
    key_preview    text        not null,
    request_digest bytea       not null,
    alias_of       bytea,
    other_hashes   bytea,
    constraint binding_pkey primary key (key_hash)
)
-- Room on the page for a replacement: its update then touches no index but that of the expiry.
with (fillfactor = 85);

-- Maintenance takes expired bindings in the order in which they expired.
create index binding_expiry on daybook.binding (expires_at);

comment on table daybook.binding is 'Which job a key stands for, and until when.';
comment on column daybook.binding.run_at is 'The run time the caller gave; null where none was given.';
comment on column daybook.binding.window_ms is 'TTL or window, in milliseconds.';
comment on column daybook.binding.replaced is 'How often a debounced request has taken the job''s place.';
comment on column daybook.binding.alias_of is 'On an alias: the key_hash of the binding. Null on the binding itself.';
comment on column daybook.binding.other_hashes is 'The key_hash of each alias, 32 bytes each, concatenated.';

-- What was refused already, so that a retry loop does not grow the ledger. Goes with its binding.
create table daybook.rejection (
    key_hash       bytea       not null,
    request_digest bytea       not null,
    reason         text        not null,
    recorded_at    timestamptz not null,
    constraint rejection_pkey primary key (key_hash, request_digest, reason)
);

comment on table daybook.rejection is 'Refusals already recorded against the current binding of a key.';
