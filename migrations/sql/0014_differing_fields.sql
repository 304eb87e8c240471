set local role daybook_owner;

-- The names of the fields in which a request differs from the one that owns the key, over the union of both,
-- sorted; null where they are the same request. jsonb equality is the authority on payloads; instants are
-- compared as instants, and the caller's run time only where she gave one.
--
-- In PL/pgSQL, which keeps its plan. An SQL function with a FROM clause is planned anew in each transaction.
create function daybook.differing_fields(
    p_binding              daybook.binding,
    p_type                 text,
    p_payload              jsonb,
    p_queue                text,
    p_priority             integer,
    p_concurrency_key      text,
    p_tags                 text[],
    p_attempt_budget       integer,
    p_retry_kind           text,
    p_retry_initial_ms     bigint,
    p_retry_max_ms         bigint,
    p_run_at               timestamptz,
    p_deadline             timestamptz,
    p_execution_timeout_ms bigint,
    p_mode                 text,
    p_window_ms            bigint
)
returns text[]
language plpgsql
stable
as $$
begin
    return (
        select array_agg(f.field order by f.field collate "C")
        -- A job that is gone, purged since its binding was read, is like no request: never a reason to call two the same.
        from (values (true)) as always (there)
        left join daybook.job as j
            on j.job_id = (p_binding).job_id
        cross join lateral (
            values
                ('type', j.type is distinct from p_type),
                ('payload', j.payload is distinct from p_payload),
                ('queue', j.queue is distinct from p_queue),
                ('priority', j.priority is distinct from p_priority),
                ('concurrency_key', j.concurrency_key is distinct from p_concurrency_key),
                ('tags', j.tags is distinct from p_tags),
                ('attempt_budget', j.attempt_budget is distinct from p_attempt_budget),
                ('retry_policy', (j.retry_kind, j.retry_initial_ms, j.retry_max_ms)
                    is distinct from (p_retry_kind, p_retry_initial_ms, p_retry_max_ms)),
                ('run_at', (p_binding).run_at is distinct from p_run_at),
                ('deadline', j.deadline is distinct from p_deadline),
                ('execution_timeout', j.execution_timeout_ms is distinct from p_execution_timeout_ms),
                ('mode', (p_binding).mode is distinct from p_mode),
                ('ttl', case when (p_binding).mode = 'idempotency' then (p_binding).window_ms end
                    is distinct from case when p_mode = 'idempotency' then p_window_ms end),
                ('window', case when (p_binding).mode <> 'idempotency' then (p_binding).window_ms end
                    is distinct from case when p_mode <> 'idempotency' then p_window_ms end)
        ) as f (field, differs)
        where f.differs
    );
end
$$;
