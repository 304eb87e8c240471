set local role daybook_owner;

-- Redrives asked for, so that asking twice makes one job.
create table daybook.redrive (
    source_job_id uuid        not null,
    request_id    text        not null,
    target_job_id uuid        not null,
    actor         text        not null,
    reason        text        not null,
    redriven_at   timestamptz not null,
    constraint redrive_pkey primary key (source_job_id, request_id)
);

-- What upkeep goes through.
create index redrive_redriven
    on daybook.redrive (redriven_at);

comment on table daybook.redrive is 'New jobs made from failed ones, by source and request ID.';
grant select on daybook.redrive to daybook_operator;

-- Makes a new job from a failed one. Outcomes:
--   redriven      job_id is the new job
--   replayed      the same request again: job_id is the first one's job
--   conflict      the same request ID with another actor or reason: fields names them
--   key_conflict  the source's key is meanwhile owned by another job: job_id is that one
--   not_failed    fields has the state that the source is in
--   not_found, invalid
-- The key stays with whoever owns it: a replay of the original request still returns the original job.
create function daybook.redrive_job(
    p_source_job_id uuid,
    p_request_id    text,
    p_actor         text,
    p_reason        text,
    out outcome     text,
    out job_id      uuid,
    out fields      text[]
)
language plpgsql
volatile
security definer
set search_path = pg_catalog, daybook, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
    v_redrive daybook.redrive;
    v_binding daybook.binding;
    v_source  daybook.job;
    v_target  daybook.job;
    v_now     timestamptz;
    v_xid     xid8;
begin
    outcome := 'invalid';
    fields := array_remove(array[
        daybook.invalid_act(p_actor, p_reason),
        case when coalesce(octet_length(p_request_id), 0) not between 1 and 200 then 'request_id' end
    ], null);
    if cardinality(fields) > 0 then
        return;
    end if;

    -- Two rounds at most: the second reads what a racing twin of this request has committed.
    loop
        select r.*
        into v_redrive
        from daybook.redrive as r
        where r.source_job_id = p_source_job_id
            and r.request_id = p_request_id;
        if found then
            fields := array_remove(array[
                case when v_redrive.actor <> p_actor then 'actor' end,
                case when v_redrive.reason <> p_reason then 'reason' end
            ], null);
            outcome := case when cardinality(fields) > 0 then 'conflict' else 'replayed' end;
            job_id := v_redrive.target_job_id;
            return;
        end if;

        -- Binding, then job.
        select b.*
        into v_binding
        from daybook.job as j
        join daybook.binding as b
            on b.key_hash = j.key_hash
        where j.job_id = p_source_job_id
        for no key update of b;
        select j.*
        into v_source
        from daybook.job as j
        where j.job_id = p_source_job_id
        for no key update;
        if not found then
            outcome := 'not_found';
            return;
        end if;
        v_now := daybook.clock();
        if v_source.state <> 'failed' then
            outcome := 'not_failed';
            fields := array[v_source.state];
            return;
        end if;
        if v_binding.job_id <> p_source_job_id and v_binding.expires_at > v_now then
            outcome := 'key_conflict';
            job_id := v_binding.job_id;
            return;
        end if;

        job_id := daybook.new_job_id(v_now, daybook.job_id_tail());
        insert into daybook.redrive (source_job_id, request_id, target_job_id, actor, reason, redriven_at)
        values (p_source_job_id, p_request_id, redrive_job.job_id, p_actor, p_reason, v_now)
        on conflict on constraint redrive_pkey do nothing;
        exit when found;
    end loop;

    -- The new job has no key of its own, and so can never stand in the way of one.
    insert into daybook.job (
        job_id, run_at, accepted_at, execution_timeout_ms, retry_initial_ms, retry_max_ms, priority, attempt_budget,
        state, queue, type, concurrency_key, retry_kind, tags, payload
    )
    values (
        redrive_job.job_id, v_now, v_now, v_source.execution_timeout_ms, v_source.retry_initial_ms,
        v_source.retry_max_ms, v_source.priority, v_source.attempt_budget, 'ready', v_source.queue, v_source.type,
        v_source.concurrency_key, v_source.retry_kind, v_source.tags, v_source.payload
    )
    returning job.* into v_target;
    v_xid := pg_current_xact_id();
    insert into daybook.event (recorded_at, job_id, key_hash, kind, body)
    values (
        v_now, v_target.job_id, v_source.key_hash, 'job.redriven',
        daybook.job_body(
            v_target,
            ',"source_job_id":"' || p_source_job_id::text || '"'
                || daybook.member('actor', p_actor)
                || daybook.member('reason', p_reason)
                || daybook.member('request_id', p_request_id)
        )
    );
    outcome := 'redriven';
end
$$;

-- The failed jobs of a page, by when they failed: what a bulk redrive goes through. Nulls select everything.
create function daybook.failed_jobs(
    p_queue           text,
    p_type            text,
    p_failed_before   timestamptz,
    p_after_finished  timestamptz,
    p_after_job_id    uuid,
    p_limit           integer,
    out job_ids       uuid[],
    out last_finished timestamptz,
    out last_job_id   uuid
)
language sql
stable
security definer
set search_path = pg_catalog, daybook, pg_temp
as $$
    select
        array_agg(j.job_id order by j.finished_at, j.job_id),
        (array_agg(j.finished_at order by j.finished_at, j.job_id))[count(*)],
        (array_agg(j.job_id order by j.finished_at, j.job_id))[count(*)]
    from (
        select j.job_id, j.finished_at
        from daybook.job as j
        where j.state in ('succeeded', 'failed', 'cancelled')
            and j.state = 'failed'
            and (p_queue is null or j.queue = p_queue)
            and (p_type is null or j.type = p_type)
            and (p_failed_before is null or j.finished_at < p_failed_before)
            and (j.finished_at, j.job_id) > (
                coalesce(p_after_finished, '-infinity'), coalesce(p_after_job_id, '00000000-0000-0000-0000-000000000000')
            )
        order by j.finished_at, j.job_id
        limit p_limit
    ) as j
$$;

grant execute on function daybook.redrive_job, daybook.failed_jobs to daybook_app, daybook_operator;

-- Removes what was recorded of purges that have finished and of redrives, at most p_limit of each, once its retention is over. After
-- that the same request ID counts as new.
create function daybook.forget_requests(
    p_retention_ms bigint,
    p_limit        integer,
    out purges     integer,
    out redrives   integer
)
language plpgsql
volatile
security definer
set search_path = pg_catalog, daybook, pg_temp
set jit = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set lock_timeout = '100ms'
as $$
declare
    v_before timestamptz := daybook.clock() - p_retention_ms * interval '1 millisecond';
begin
    with picked as materialized (
        select p.request_id
        from daybook.purge as p
        where p.finished_at <= v_before
        order by p.finished_at
        limit p_limit
        for update skip locked
    )
    delete from daybook.purge as p
    using picked as k
    where p.request_id = k.request_id;
    get diagnostics purges = row_count;

    with picked as materialized (
        select r.source_job_id, r.request_id
        from daybook.redrive as r
        where r.redriven_at <= v_before
        order by r.redriven_at
        limit p_limit
        for update skip locked
    )
    delete from daybook.redrive as r
    using picked as k
    where r.source_job_id = k.source_job_id
        and r.request_id = k.request_id;
    get diagnostics redrives = row_count;
end
$$;

grant execute on function daybook.forget_requests to daybook_app;
