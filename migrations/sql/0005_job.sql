set local role daybook_owner;

-- What was accepted and where it is. Only the state columns ever change.
--
-- The payload is kept here and nowhere else: it may one day have to be erased, and an event never can be.
create table daybook.job (
    job_id               uuid        not null,
    run_at               timestamptz not null,
    accepted_at          timestamptz not null,
    deadline             timestamptz,
    lease_expires_at     timestamptz,
    finished_at          timestamptz,
    execution_timeout_ms bigint,
    retry_initial_ms     bigint,
    retry_max_ms         bigint,
    fence                bigint      not null default 0,
    priority             smallint    not null,
    attempt_budget       smallint    not null,
    attempt              smallint    not null default 0,
    state                text        not null,
    queue                text        not null,
    type                 text        not null,
    concurrency_key      text,
    retry_kind           text,
    tags                 text[],
    payload              jsonb       not null,
    constraint job_pkey primary key (job_id),
    constraint job_state_known check (state in ('scheduled', 'ready', 'active', 'succeeded', 'failed', 'cancelled'))
)
with (fillfactor = 90);

-- A worker takes the best job of a queue: highest priority, then earliest due, then oldest.
create index job_claim
    on daybook.job (queue, priority desc, run_at, job_id)
    where state in ('scheduled', 'ready');

comment on table daybook.job is 'Accepted work: what was asked for (immutable) and where it is (state columns).';
