set local role daybook_owner;

-- The decision about a debounced request whose key has a binding, unless that is live and its job pending: daybook.enqueue
-- replaces such a job without asking. Its outcome is
--   pending          the job may be replaced after all; binding and job are locked
--   non_replaceable  with a reason; the job is as it was
--   free             the binding is gone, and the key may be claimed; job_id says what the new job runs after
--   retry            the binding has meanwhile become another one: look again
--   invalid          the deadline has passed
--
-- Pending is a job that is scheduled or ready and of which no attempt has ever begun. A follow-up that waits for
-- its predecessor stays replaceable however long that takes: its window is not over before it could run.
create function daybook.debounce(
    p_binding        daybook.binding,
    p_type           text,
    p_queue          text,
    p_run_at         timestamptz,
    p_deadline       timestamptz,
    p_window_ms      bigint,
    p_max_wait_ms    bigint,
    p_follow_up      boolean,
    p_request_digest bytea,
    p_traceparent    text
)
returns daybook.decision
language plpgsql
volatile
as $$
declare
    v_binding      daybook.binding;
    v_job          daybook.job;
    v_now          timestamptz;
    v_live         boolean;
    v_reason       text;
    v_after_job_id uuid;
begin
    -- A refusal that is known already writes nothing, so it must not lock. What made it one cannot have changed back:
    -- a job that has begun stays begun, an elapsed window stays elapsed, an owner keeps its mode.
    if not p_follow_up then
        v_now := daybook.clock();
        select r.reason
        into v_reason
        from daybook.rejection as r
        join daybook.binding as b
            on b.key_hash = r.key_hash
            and b.job_id = (p_binding).job_id
        where r.key_hash = (p_binding).key_hash
            and r.request_digest = p_request_digest
            and r.reason <> 'conflict'
            and ((p_binding).expires_at > v_now or r.reason = 'window_elapsed_pending');
        if found and (v_reason <> 'window_elapsed_pending' or exists (
                select
                from daybook.job as j
                where j.job_id = (p_binding).job_id
                    and j.state in ('scheduled', 'ready')
                    and j.attempt = 0))
        then
            return row(
                (p_binding).job_id, 'non_replaceable', v_reason, (p_binding).bound_at, (p_binding).expires_at, null
            )::daybook.decision;
        end if;
        v_reason := null;
    end if;

    -- Binding, then job; then the clock.
    select b.*
    into v_binding
    from daybook.binding as b
    where b.key_hash = (p_binding).key_hash
        and b.job_id = (p_binding).job_id
    for no key update;
    if not found then
        return row(null, 'retry', null, null, null, null)::daybook.decision;
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
    v_live := v_binding.expires_at > v_now;

    if v_binding.mode <> 'debounce' then
        if v_live then
            v_reason := 'incompatible_key_mode';
        end if;
    elsif v_job.state is null or v_job.state not in ('scheduled', 'ready') or v_job.attempt > 0 then
        if v_live then
            v_reason := 'not_pending';
        end if;
    elsif v_live or exists (
            select
            from daybook.job as j
            where j.job_id = v_job.after_job_id
                and j.state in ('scheduled', 'ready', 'active'))
    then
        return row(v_binding.job_id, 'pending', null, null, null, null)::daybook.decision;
    else
        v_reason := 'window_elapsed_pending';
    end if;

    if v_reason is null or (p_follow_up and v_binding.mode = 'debounce') then
        -- Judged before anything is written: a refused request leaves nothing behind.
        if p_deadline <= greatest(v_now, coalesce(
                p_run_at, v_now + least(p_window_ms, p_max_wait_ms) * interval '1 millisecond'))
        then
            return row(null, 'invalid', 'deadline', null, null, null)::daybook.decision;
        end if;
        -- The key goes to a new job. With a follow-up that one waits for the retained job, where that still lives.
        if p_follow_up and v_binding.mode = 'debounce' and v_job.state in ('scheduled', 'ready', 'active') then
            v_after_job_id := v_job.job_id;
        end if;
        if v_live then
            perform daybook.unbind(v_binding, 'binding.released', 'follow_up', null, v_now);
        else
            perform daybook.unbind(v_binding, 'binding.expired', null, null, v_now);
        end if;
        return row(v_after_job_id, 'free', null, null, null, null)::daybook.decision;
    end if;

    perform daybook.record_rejection(
        v_binding.key_hash, v_binding.job_id, v_reason, p_type, p_queue, 'debounce', null, p_request_digest, p_traceparent
    );
    return row(
        v_binding.job_id, 'non_replaceable', v_reason, v_binding.bound_at, v_binding.expires_at, null
    )::daybook.decision;
end
$$;
