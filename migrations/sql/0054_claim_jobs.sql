set local role daybook_owner;

-- Gives a worker the best jobs of a queue under a lease: highest priority, then earliest due. Each claim begins an
-- attempt and raises the job's fence, so that whoever held the job before can change nothing any more. Rows that others
-- hold are passed over, never waited for. Each column has one element for each job.
create function daybook.claim_jobs(
    p_queue                  text,
    p_worker                 text,
    p_limit                  integer,
    p_lease_ms               bigint,
    out job_ids              uuid[],
    out fences               bigint[],
    out attempts             integer[],
    out attempt_budgets      integer[],
    out types                text[],
    out payloads             text[],
    out priorities           integer[],
    out concurrency_keys     text[],
    out tags                 text[],
    out deadlines            timestamptz[],
    out execution_timeout_ms bigint[],
    out lease_expires_at     timestamptz
)
language plpgsql
volatile
security definer
set search_path = pg_catalog, daybook, pg_temp
set jit = off
-- A session may keep its plans from when the table was empty, and a queue grows.
set enable_seqscan = off
-- SKIP LOCKED may wait all the same, see commands/DECISION.md. This ends the wait before it can become a deadlock; the Go
-- package then calls again.
set lock_timeout = '100ms'
as $$
#variable_conflict use_column
declare
    v_now timestamptz := daybook.clock();
    v_ids uuid[];
    v_job daybook.job;
    v_xid xid8;
    v_cancelled boolean;
begin
    p_limit := coalesce(p_limit, 0);
    lease_expires_at := v_now + p_lease_ms * interval '1 millisecond';

    -- Each step picks ids by an index, and then takes the jobs by their ids. In one statement a session that has kept its
    -- plans from when the table was empty would join the queue with the table row by row.

    -- Whatever is due of this queue becomes ready; more than a worker takes, so that priority decides among them.
    v_ids := array(
        select d.job_id
        from daybook.job as d
        where d.queue = p_queue
            and d.state = 'scheduled'
            and d.run_at <= v_now
        order by d.run_at, d.job_id
        limit greatest(1000, p_limit)
        for no key update skip locked
    );
    if v_ids <> '{}' then
        update daybook.job as j
        set state = 'ready'
        where j.job_id = any (v_ids);
    end if;

    -- A job must not begin after its deadline. Such are looked for among those whose turn comes next, until there are none:
    -- the whole queue would be read in vain by every claim, or have to keep one more index.
    loop
        v_ids := array(
            select n.job_id
            from (
                select c.job_id, c.deadline
                from daybook.job as c
                where c.queue = p_queue
                    and c.state = 'ready'
                order by c.priority desc, c.run_at, c.job_id
                limit greatest(100, p_limit)
            ) as n
            where n.deadline <= v_now
        );
        v_cancelled := false;
        for v_job in
            select j.*
            from daybook.job as j
            where j.job_id = any (v_ids)
            order by j.priority desc, j.run_at, j.job_id
            for no key update skip locked
        loop
            -- Somebody may have taken it meanwhile.
            continue when v_job.state <> 'ready' or coalesce(v_job.deadline > v_now, true);
            update daybook.job as j
            set state = 'cancelled',
                finished_at = v_now
            where j.job_id = v_job.job_id
            returning j.*
            into v_job;
            perform daybook.append_job_event(v_job, 'job.cancelled', v_now, ',"reason":"deadline"');
            v_cancelled := true;
        end loop;
        exit when not v_cancelled;
    end loop;

    -- Locked and not yet changed. A worker that asks in vain leaves nothing behind, not even an xid.
    v_ids := array(
        select j.job_id
        from daybook.job as j
        where j.queue = p_queue
            and j.state = 'ready'
            and (j.deadline is null or j.deadline > v_now)
            -- A follow-up waits for its predecessor.
            and (j.after_job_id is null or not exists (
                select
                from daybook.job as p
                where p.job_id = j.after_job_id
                    and p.state in ('scheduled', 'ready', 'active')
            ))
        order by j.priority desc, j.run_at, j.job_id
        limit p_limit
        for no key update skip locked
    );
    if v_ids = '{}' then
        return;
    end if;
    v_xid := pg_current_xact_id();
    with claimed as (
        update daybook.job as j
        set state = 'active',
            attempt = j.attempt + 1,
            fence = j.fence + 1,
            worker = p_worker,
            lease_expires_at = claim_jobs.lease_expires_at
        where j.job_id = any (v_ids)
        returning j.*
    ),
    started as (
        insert into daybook.event (recorded_at, job_id, key_hash, kind, body)
        select
            v_now, c.job_id, c.key_hash, 'job.started',
            daybook.job_body(
                c,
                daybook.member('worker', c.worker) || ',"lease_expires_at":"' || daybook.instant(c.lease_expires_at) || '"'
            )
        from claimed as c
        order by c.priority desc, c.run_at, c.job_id
    )
    select
        array_agg(c.job_id), array_agg(c.fence), array_agg(c.attempt::integer), array_agg(c.attempt_budget::integer),
        array_agg(c.type), array_agg(c.payload::text), array_agg(c.priority::integer), array_agg(c.concurrency_key),
        array_agg(to_json(c.tags)::text), array_agg(c.deadline), array_agg(c.execution_timeout_ms)
    into job_ids, fences, attempts, attempt_budgets, types, payloads, priorities, concurrency_keys, tags, deadlines,
        execution_timeout_ms
    from (
        select c.*
        from claimed as c
        order by c.priority desc, c.run_at, c.job_id
    ) as c;
end
$$;

grant execute on function daybook.claim_jobs to daybook_app;
