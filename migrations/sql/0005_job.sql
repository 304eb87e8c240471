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
    key_hash             bytea,
    after_job_id         uuid,
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
    worker               text,
    last_error           text,
    tags                 text[],
    payload              jsonb       not null,
    constraint job_pkey primary key (job_id)
)
with (fillfactor = 90);

-- A job stands in one of these four at a time: it waits for its run time, waits for a worker, is held by one, or
-- is finished and waits to be pruned. A worker takes the best job of a queue: highest priority, then earliest due.
create index job_scheduled
    on daybook.job (queue, run_at, job_id)
    where state = 'scheduled';

create index job_ready
    on daybook.job (queue, priority desc, run_at, job_id)
    where state = 'ready';

create index job_active
    on daybook.job (lease_expires_at, job_id)
    where state = 'active';

create index job_finished
    on daybook.job (finished_at, job_id)
    where state in ('succeeded', 'failed', 'cancelled');

comment on table daybook.job is 'Accepted work: what was asked for (immutable) and where it is (state columns).';
comment on column daybook.job.key_hash is 'The key it was accepted under; its binding, where it still has one, is found by it.';
comment on column daybook.job.after_job_id is 'The job that must be finished before this one may begin (a debounced follow-up).';
comment on column daybook.job.fence is 'Grows with each claim; who holds an older one can change nothing.';
