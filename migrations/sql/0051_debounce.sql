set local role daybook_owner;

-- The decision about a debounced request whose key has a binding. Its outcome is
--   replaced         the pending job is now what was asked for last
--   non_replaceable  with a reason; the job is as it was
--   free             the binding is gone, and the key may be claimed; after_job_id says what the new job runs after
--   retry            the binding has meanwhile become another one: look again
--
-- Pending is a job that is scheduled or ready and of which no attempt has ever begun. A follow-up that waits for
-- its predecessor stays replaceable however long that takes: its window is not over before it could run.
create function daybook.debounce(
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
    p_window_ms            bigint,
    p_max_wait_ms          bigint,
    p_schedule             text,
    p_follow_up            boolean,
    p_request_digest       bytea,
    p_traceparent          text,
    p_request              text,
    out outcome            text,
    out reason             text,
    out bound_at           timestamptz,
    out expires_at         timestamptz,
    out after_job_id       uuid
)
language plpgsql
volatile
as $$
declare
    v_binding  daybook.binding;
    v_job      daybook.job;
    v_now      timestamptz;
    v_live     boolean;
    v_pending  boolean;
    v_waiting  boolean;
    v_run_at   timestamptz;
    v_limit    timestamptz;
    v_xid      xid8;
begin
    -- A refusal that is known already writes nothing, so it must not lock. What made it one cannot have changed back:
    -- a job that has begun stays begun, an elapsed window stays elapsed, an owner keeps its mode.
    if not p_follow_up then
        v_now := daybook.clock();
        select r.reason
        into reason
        from daybook.rejection as r
        join daybook.binding as b
            on b.key_hash = r.key_hash
            and b.job_id = (p_binding).job_id
        where r.key_hash = (p_binding).key_hash
            and r.request_digest = p_request_digest
            and r.reason <> 'conflict'
            and ((p_binding).expires_at > v_now or r.reason = 'window_elapsed_pending');
        if found and (reason <> 'window_elapsed_pending' or exists (
                select
                from daybook.job as j
                where j.job_id = (p_binding).job_id
                    and j.state in ('scheduled', 'ready')
                    and j.attempt = 0))
        then
            outcome := 'non_replaceable';
            bound_at := (p_binding).bound_at;
            expires_at := (p_binding).expires_at;
            return;
        end if;
        reason := null;
    end if;

    -- Binding, then job; then the clock.
    select b.*
    into v_binding
    from daybook.binding as b
    where b.key_hash = (p_binding).key_hash
        and b.job_id = (p_binding).job_id
    for no key update;
    if not found then
        outcome := 'retry';
        return;
    end if;
    -- A job that has begun must not be held here: workers lock several of those at once, in the order of their ids, and
    -- a batch of requests comes to them in the order of their keys. Mostly nobody holds the job, and this is all.
    select j.*
    into v_job
    from daybook.job as j
    where j.job_id = v_binding.job_id
        and j.state in ('scheduled', 'ready')
        and j.attempt = 0
    for no key update skip locked;
    if not found then
        -- It has begun or is gone, and nothing changes that back; or somebody is at it just now.
        select j.*
        into v_job
        from daybook.job as j
        where j.job_id = v_binding.job_id;
        if v_job.state in ('scheduled', 'ready') and v_job.attempt = 0 then
            begin
                select j.*
                into v_job
                from daybook.job as j
                where j.job_id = v_binding.job_id
                for no key update;
                if v_job.state not in ('scheduled', 'ready') or v_job.attempt > 0 then
                    raise sqlstate 'DB003';
                end if;
            exception
                when sqlstate 'DB003' then
                    -- A worker was faster. The subtransaction gives the lock back; the variable keeps what was read.
                    null;
            end;
        end if;
    end if;
    v_now := daybook.clock();

    bound_at := v_binding.bound_at;
    expires_at := v_binding.expires_at;
    v_live := v_binding.expires_at > v_now;
    v_pending := coalesce(v_job.state in ('scheduled', 'ready') and v_job.attempt = 0, false);
    v_waiting := false;
    if v_pending and v_job.after_job_id is not null then
        v_waiting := exists (
            select
            from daybook.job as j
            where j.job_id = v_job.after_job_id
                and j.state in ('scheduled', 'ready', 'active')
        );
    end if;

    if v_binding.mode <> 'debounce' then
        if v_live then
            reason := 'incompatible_key_mode';
        end if;
    elsif v_pending and (v_live or v_waiting) then
        v_limit := v_binding.bound_at + p_max_wait_ms * interval '1 millisecond';
        if p_schedule = 'preserve' then
            v_run_at := v_job.run_at;
        else
            v_run_at := coalesce(p_run_at, least(v_now + p_window_ms * interval '1 millisecond', v_limit));
            expires_at := least(v_now + p_window_ms * interval '1 millisecond', v_limit);
        end if;
        if p_deadline <= greatest(v_now, v_run_at) then
            outcome := 'invalid';
            reason := 'deadline';
            return;
        end if;

        update daybook.binding as b
        set expires_at = debounce.expires_at,
            run_at = p_run_at,
            window_ms = p_window_ms,
            replaced = b.replaced + 1,
            request_digest = p_request_digest
        where b.key_hash = v_binding.key_hash;
        update daybook.job as j
        set run_at = v_run_at,
            deadline = p_deadline,
            execution_timeout_ms = p_execution_timeout_ms,
            retry_initial_ms = p_retry_initial_ms,
            retry_max_ms = p_retry_max_ms,
            priority = p_priority,
            attempt_budget = p_attempt_budget,
            state = case when v_run_at > v_now then 'scheduled' else 'ready' end,
            queue = p_queue,
            type = p_type,
            concurrency_key = p_concurrency_key,
            retry_kind = p_retry_kind,
            tags = p_tags,
            payload = p_payload
        where j.job_id = v_job.job_id;

        v_xid := pg_current_xact_id();
        insert into daybook.event (recorded_at, job_id, key_hash, kind, scope, key_preview, body)
        values (
            v_now, v_job.job_id, v_binding.key_hash, 'enqueue.replaced', v_binding.scope, v_binding.key_preview,
            daybook.replaced_body(
                daybook.accepted_body(
                    v_job.job_id, p_request, v_run_at, debounce.expires_at, v_job.after_job_id
                ),
                v_binding.replaced + 1, v_binding.request_digest, v_job.run_at
            )
        );
        outcome := 'replaced';
        return;
    elsif v_live then
        reason := 'not_pending';
    elsif v_pending then
        reason := 'window_elapsed_pending';
    end if;

    if reason is null or (p_follow_up and v_binding.mode = 'debounce') then
        -- Judged before anything is written: a refused request leaves nothing behind.
        if p_deadline <= greatest(v_now, coalesce(
                p_run_at, v_now + least(p_window_ms, p_max_wait_ms) * interval '1 millisecond'))
        then
            outcome := 'invalid';
            reason := 'deadline';
            return;
        end if;
        -- The key goes to a new job. With a follow-up that one waits for the retained job, where that still lives.
        if p_follow_up and v_binding.mode = 'debounce' and v_job.state in ('scheduled', 'ready', 'active') then
            after_job_id := v_job.job_id;
        end if;
        if v_live then
            perform daybook.unbind(v_binding, 'binding.released', 'follow_up', null, v_now);
        else
            perform daybook.unbind(v_binding, 'binding.expired', null, null, v_now);
        end if;
        outcome := 'free';
        reason := null;
        return;
    end if;

    perform daybook.record_rejection(
        v_binding.key_hash, v_binding.job_id, reason, p_type, p_queue, 'debounce', null, p_request_digest, p_traceparent
    );
    outcome := 'non_replaceable';
end
$$;
