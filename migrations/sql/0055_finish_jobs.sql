set local role daybook_owner;

-- What a worker may do with the jobs it holds. Each function changes only a job that is active under the fence that
-- the worker was given, and says for each whether it did: a stale fence changes nothing.
--
-- Rows are locked in the order of their ids, so that two workers that finish overlapping sets never deadlock. Jobs are
-- named by the array of their ids beside each join with it, so that they are found by it whatever plan a session has kept.

-- Extends the lease.
create function daybook.heartbeat_jobs(p_job_ids uuid[], p_fences bigint[], p_lease_ms bigint, out held boolean[], out lease_expires_at timestamptz)
language plpgsql
volatile
security definer
set search_path = pg_catalog, daybook, pg_temp
set jit = off
set enable_seqscan = off
as $$
begin
    perform
    from daybook.job as j
    where j.job_id = any (p_job_ids)
    order by j.job_id
    for no key update;
    heartbeat_jobs.lease_expires_at := daybook.clock() + p_lease_ms * interval '1 millisecond';
    with beat as (
        update daybook.job as j
        set lease_expires_at = heartbeat_jobs.lease_expires_at
        from unnest(p_job_ids, p_fences) as i (job_id, fence)
        where j.job_id = any (p_job_ids)
            and j.job_id = i.job_id
            and j.fence = i.fence
            and j.state = 'active'
        returning j.job_id, j.fence
    )
    select array_agg(b.job_id is not null order by i.ordinal)
    into held
    from unnest(p_job_ids, p_fences) with ordinality as i (job_id, fence, ordinal)
    left join beat as b
        on b.job_id = i.job_id
        and b.fence = i.fence;
end
$$;

-- The attempt succeeded.
create function daybook.complete_jobs(p_job_ids uuid[], p_fences bigint[])
returns boolean[]
language plpgsql
volatile
security definer
set search_path = pg_catalog, daybook, pg_temp
set jit = off
set enable_seqscan = off
as $$
declare
    v_now  timestamptz;
    v_done boolean[];
    v_xid  xid8;
begin
    perform
    from daybook.job as j
    where j.job_id = any (p_job_ids)
    order by j.job_id
    for no key update;
    v_now := daybook.clock();
    v_xid := pg_current_xact_id();
    with done as (
        update daybook.job as j
        set state = 'succeeded',
            finished_at = v_now,
            lease_expires_at = null
        from unnest(p_job_ids, p_fences) as i (job_id, fence)
        where j.job_id = any (p_job_ids)
            and j.job_id = i.job_id
            and j.fence = i.fence
            and j.state = 'active'
        returning j.*
    ),
    appended as (
        insert into daybook.event (recorded_at, job_id, key_hash, kind, body)
        select v_now, d.job_id, d.key_hash, 'job.succeeded', daybook.job_body(d, null)
        from done as d
    )
    select array_agg(d.job_id is not null order by i.ordinal)
    into v_done
    from unnest(p_job_ids, p_fences) with ordinality as i (job_id, fence, ordinal)
    left join done as d
        on d.job_id = i.job_id
        and d.fence = i.fence;
    return v_done;
end
$$;

-- The attempt failed. Whether there is another, and when, is decided here, from the job's budget and policy. The error
-- is kept on the job, where it can be erased, and not in the event.
create function daybook.fail_job(
    p_job_id   uuid,
    p_fence    bigint,
    p_error    text,
    out state  text,
    out run_at timestamptz
)
language plpgsql
volatile
security definer
set search_path = pg_catalog, daybook, pg_temp
set jit = off
set enable_seqscan = off
as $$
declare
    v_now timestamptz;
    v_job daybook.job;
begin
    select j.*
    into v_job
    from daybook.job as j
    where j.job_id = p_job_id
        and j.fence = p_fence
        and j.state = 'active'
    for no key update;
    if not found then
        return;
    end if;
    v_now := daybook.clock();
    if v_job.attempt < v_job.attempt_budget then
        state := 'scheduled';
        run_at := v_now + daybook.retry_delay(
            v_job.retry_kind, v_job.retry_initial_ms, v_job.retry_max_ms, v_job.job_id, v_job.attempt
        );
        if run_at <= v_now then
            state := 'ready';
        end if;
        update daybook.job as j
        set state = fail_job.state,
            run_at = fail_job.run_at,
            lease_expires_at = null,
            last_error = left(p_error, 2000)
        where j.job_id = p_job_id;
        perform daybook.append_job_event(
            v_job, 'job.attempt_failed', v_now, ',"run_at":"' || daybook.instant(run_at) || '"'
        );
        return;
    end if;
    state := 'failed';
    update daybook.job as j
    set state = 'failed',
        finished_at = v_now,
        lease_expires_at = null,
        last_error = left(p_error, 2000)
    where j.job_id = p_job_id;
    perform daybook.append_job_event(v_job, 'job.failed', v_now, ',"reason":"attempt_budget"');
end
$$;

-- Takes jobs back whose lease has run out: to the next worker, or where no attempt is left to failed. Returns how many.
create function daybook.expire_leases(p_limit integer)
returns integer
language plpgsql
volatile
security definer
set search_path = pg_catalog, daybook, pg_temp
set jit = off
set enable_seqscan = off
-- SKIP LOCKED may wait all the same, see commands/DECISION.md. This ends the wait before it can become a deadlock; the Go
-- package then calls again.
set lock_timeout = '100ms'
as $$
declare
    v_now   timestamptz := daybook.clock();
    v_job   daybook.job;
    v_count integer     := 0;
begin
    for v_job in
        select j.*
        from daybook.job as j
        where j.state = 'active'
            and j.lease_expires_at <= v_now
        order by j.lease_expires_at, j.job_id
        limit p_limit
        for no key update skip locked
    loop
        perform daybook.append_job_event(v_job, 'job.lease_expired', v_now, daybook.member('worker', v_job.worker));
        if v_job.attempt < v_job.attempt_budget then
            update daybook.job as j
            set state = 'ready',
                run_at = v_now,
                fence = j.fence + 1,
                lease_expires_at = null
            where j.job_id = v_job.job_id;
        else
            update daybook.job as j
            set state = 'failed',
                finished_at = v_now,
                fence = j.fence + 1,
                lease_expires_at = null
            where j.job_id = v_job.job_id;
            perform daybook.append_job_event(v_job, 'job.failed', v_now, ',"reason":"lease_expired"');
        end if;
        v_count := v_count + 1;
    end loop;
    return v_count;
end
$$;

grant execute on function
    daybook.heartbeat_jobs, daybook.complete_jobs, daybook.fail_job, daybook.expire_leases
to daybook_app;
