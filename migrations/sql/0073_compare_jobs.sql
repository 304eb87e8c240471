set local role daybook_owner;

-- Compares the jobs with what their events say they must be: those of one slice of p_slices (at most 256), by the last
-- byte of the job id. As exact while writers go on as daybook.compare_bindings, and with the same columns.
--
-- What no event tells is not compared: that a job became ready when its time came, a heartbeat, who works at it, its
-- error. A finished job may be gone, because its retention may be over.
create function daybook.compare_jobs(p_slice integer, p_slices integer, p_samples integer)
returns table (
    compared       bigint,
    missing        bigint,
    extra          bigint,
    different      bigint,
    first_position bigint,
    difference     text,
    key_digest     text,
    job_id         uuid,
    columns        text[],
    event_id       bigint,
    "position"     bigint
)
language sql
stable
security definer
set search_path = pg_catalog, daybook, pg_temp
set jit = off
as $$
    with fold as materialized (
        select
            e.job_id,
            max(e.event_id) filter (where e.kind in ('enqueue.accepted', 'job.redriven')) as made_id,
            -- What it was last asked to be, what it has last become, and what last said when it is due.
            max(e.event_id) filter (where e.kind in ('enqueue.accepted', 'job.redriven', 'enqueue.replaced')) as asked_id,
            max(e.event_id) as state_id,
            max(e.event_id) filter (where e.kind in (
                'enqueue.accepted', 'job.redriven', 'enqueue.replaced', 'job.attempt_failed', 'job.lease_expired', 'job.released'
            )) as due_id,
            count(*) filter (where e.kind = 'job.started') as attempt,
            bool_or(e.kind = 'job.released') as released
        from daybook.event as e
        where e.kind in (
                'enqueue.accepted', 'job.redriven', 'enqueue.replaced', 'job.started', 'job.succeeded', 'job.attempt_failed',
                'job.failed', 'job.lease_expired', 'job.cancelled', 'job.purged', 'job.released'
            )
            and get_byte(uuid_send(e.job_id), 15) % p_slices = p_slice
        group by e.job_id
    ),
    became as (
        select
            f.*,
            l.recorded_at as became_at,
            case
                when f.made_id is null then 'gone'
                when l.kind = 'job.started' then 'active'
                when l.kind = 'job.succeeded' then 'succeeded'
                when l.kind = 'job.failed' then 'failed'
                when l.kind = 'job.cancelled' then 'cancelled'
                when l.kind = 'job.purged' then 'gone'
                else 'waiting'
            end as state
        from fold as f
        join daybook.event as l
            on l.event_id = f.state_id
    ),
    stored as (
        select j.*, case when j.state in ('scheduled', 'ready') then 'waiting' else j.state end as folded_state
        from daybook.job as j
        where get_byte(uuid_send(j.job_id), 15) % p_slices = p_slice
    ),
    compared as (
        select
            coalesce(x.job_id, s.job_id) as job_id,
            s.key_hash,
            x.state_id,
            case
                when s.job_id is null then 'missing'
                when coalesce(x.state, 'gone') = 'gone' then 'extra'
                else 'different'
            end as difference,
            case when s.job_id is not null and x.state <> 'gone' then array_remove(array[
                case when s.accepted_at <> m.recorded_at then 'accepted_at' end,
                case when a.kind <> 'job.redriven'
                    and s.after_job_id is distinct from case when not x.released then b.after_job_id end then 'after_job_id' end,
                case when s.attempt <> x.attempt then 'attempt' end,
                case when s.attempt_budget is distinct from b.attempt_budget then 'attempt_budget' end,
                case when a.kind <> 'job.redriven' and s.concurrency_key is distinct from b.concurrency_key
                    then 'concurrency_key' end,
                case when a.kind <> 'job.redriven' and s.deadline is distinct from b.deadline then 'deadline' end,
                case when a.kind <> 'job.redriven' and s.execution_timeout_ms is distinct from b.execution_timeout_ms
                    then 'execution_timeout_ms' end,
                case when s.finished_at is distinct from case when x.state in ('succeeded', 'failed', 'cancelled') then x.became_at end
                    then 'finished_at' end,
                -- A redriven job has no key: its event carries that of the job it was made from.
                case when s.key_hash is distinct from case when m.kind = 'enqueue.accepted' then m.key_hash end
                    then 'key_hash' end,
                case when (s.state = 'active') <> (s.lease_expires_at is not null) then 'lease_expires_at' end,
                case when a.kind <> 'job.redriven' and octet_length(s.payload::text) is distinct from b.payload_bytes
                    then 'payload' end,
                case when a.kind <> 'job.redriven' and s.priority is distinct from b.priority then 'priority' end,
                case when s.queue is distinct from b.queue then 'queue' end,
                case when a.kind <> 'job.redriven' and b.retry_policy::text is distinct from
                        '{"kind":"' || s.retry_kind || '","initial_ms":' || s.retry_initial_ms || ',"max_ms":' || s.retry_max_ms || '}'
                    then 'retry_policy' end,
                case when x.state in ('waiting', 'active') and s.run_at is distinct from d.run_at then 'run_at' end,
                case when s.folded_state <> x.state
                        -- Scheduled is only what was to wait when it last became due, and ready only what need not wait any
                        -- more; the minute is for clocks that were set back.
                        or (s.state = 'scheduled' and d.run_at <= d.recorded_at)
                        or (s.state = 'ready' and d.run_at > d.recorded_at and d.run_at > daybook.clock() + interval '1 minute')
                    then 'state' end,
                case when a.kind <> 'job.redriven' and to_json(s.tags)::text is distinct from b.tags::text then 'tags' end,
                case when s.type is distinct from b.type then 'type' end
            ], null) end as columns
        from became as x
        full join stored as s
            on s.job_id = x.job_id
        left join daybook.event as m
            on m.event_id = x.made_id
            and s.job_id is not null
        left join daybook.event as a
            on a.event_id = x.asked_id
            and s.job_id is not null
        left join lateral json_to_record(a.body) as b (
            type text, queue text, priority integer, attempt_budget integer, payload_bytes integer, concurrency_key text,
            tags json, retry_policy json, deadline timestamptz, execution_timeout_ms bigint, after_job_id uuid
        )
            on true
        left join lateral (
            select
                e.recorded_at,
                case
                    when e.kind in ('enqueue.accepted', 'enqueue.replaced', 'job.attempt_failed')
                        then (e.body ->> 'run_at')::timestamptz
                    else e.recorded_at
                end as run_at
            from daybook.event as e
            where e.event_id = x.due_id
                and s.job_id is not null
        ) as d
            on true
        where s.job_id is not null
            or x.state in ('waiting', 'active')
    ),
    differing as (
        select c.difference, daybook.key_digest(c.key_hash) as key_digest, c.job_id, c.columns, c.state_id, o.position
        from compared as c
        left join daybook.ledger_order as o
            on o.event_id = c.state_id
        where c.difference <> 'different'
            or cardinality(c.columns) > 0
    ),
    total as (
        select
            (
                select count(*)
                from stored
            ) as compared,
            count(*) filter (where d.difference = 'missing') as missing,
            count(*) filter (where d.difference = 'extra') as extra,
            count(*) filter (where d.difference = 'different') as different,
            min(d.position) as first_position
        from differing as d
    )
    select
        t.compared, t.missing, t.extra, t.different, t.first_position,
        d.difference, d.key_digest, d.job_id, d.columns, d.state_id, d.position
    from total as t
    left join (
        select *
        from differing
        order by position, state_id, job_id
        limit p_samples
    ) as d
        on true
    order by d.position, d.state_id, d.job_id
$$;

grant execute on function daybook.compare_jobs to daybook_relay, daybook_operator;
