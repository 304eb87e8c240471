set local role daybook_owner;

-- Key → job. The primary key arbitrates between two requests that arrive at once.
--
-- During a rotation of secrets one key has one row per secret of the caller's ring, all bound to the
-- same job; alias_of names the row under the secret that was current when the key was bound.
create table daybook.binding (
    key_hash       bytea       not null,
    job_id         uuid        not null,
    bound_at       timestamptz not null,
    expires_at     timestamptz not null,
    run_at         timestamptz,
    window_ms      bigint      not null,
    mode           text        not null,
    scope          text        not null,
    key_preview    text        not null,
    request_digest bytea       not null,
    alias_of       bytea,
    constraint binding_pkey primary key (key_hash),
    constraint binding_key_hash_bytes check (octet_length(key_hash) = 32)
)
-- Room on the page for the next life of an expired key: its update then touches no index.
with (fillfactor = 85);

comment on table daybook.binding is 'Which job a key stands for, and until when.';
comment on column daybook.binding.run_at is 'The run time the caller gave; null where none was given.';
comment on column daybook.binding.window_ms is 'TTL or window, in milliseconds.';
comment on column daybook.binding.alias_of is 'Hash of the same key under the secret that was current; null on that row itself.';

-- What was refused already, so that a retry loop does not grow the ledger. Goes with its binding.
create table daybook.rejection (
    key_hash       bytea       not null,
    job_id         uuid        not null,
    request_digest bytea       not null,
    reason         text        not null,
    recorded_at    timestamptz not null,
    constraint rejection_pkey primary key (key_hash, request_digest, reason)
);

comment on table daybook.rejection is 'Refusals already recorded against the current binding of a key.';
