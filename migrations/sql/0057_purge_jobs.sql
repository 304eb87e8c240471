set local role daybook_owner;

-- Purges asked for, so that asking twice purges once.
create table daybook.purge (
    request_id   text        not null,
    queue        text        not null,
    actor        text        not null,
    reason       text        not null,
    purged       bigint      not null default 0,
    requested_at timestamptz not null,
    finished_at  timestamptz,
    constraint purge_pkey primary key (request_id)
);

-- What upkeep goes through.
create index purge_finished
    on daybook.purge (finished_at)
    where finished_at is not null;

comment on table daybook.purge is 'Purges by request ID: who asked, why, and how many jobs it removed.';
grant select on daybook.purge to daybook_operator;

-- Removes at most p_limit of the jobs of a queue that are scheduled or ready and were accepted before the purge was
-- first asked for, and releases their keys. Call it until finished is true. The same request ID again returns
-- what was recorded; with another queue, actor or reason it is a conflict that names the fields.
create function daybook.purge_jobs(
    p_queue      text,
    p_actor      text,
    p_reason     text,
    p_request_id text,
    p_limit      integer,
    out outcome  text,
    out purged   bigint,
    out finished boolean,
    out fields   text[]
)
language plpgsql
volatile
security definer
set search_path = pg_catalog, daybook, pg_temp
set jit = off
set enable_seqscan = off
as $$
declare
    v_purge   daybook.purge;
    v_jobs    uuid[];
    v_keys    bytea[];
    v_binding daybook.binding;
    v_now     timestamptz;
    v_job     daybook.job;
begin
    outcome := 'invalid';
    fields := array_remove(array[
        daybook.invalid_act(p_actor, p_reason),
        case when coalesce(octet_length(p_request_id), 0) not between 1 and 200 then 'request_id' end,
        case when coalesce(octet_length(p_queue), 0) not between 1 and 200 then 'queue' end
    ], null);
    if cardinality(fields) > 0 then
        return;
    end if;

    insert into daybook.purge (request_id, queue, actor, reason, requested_at)
    select p_request_id, p_queue, p_actor, p_reason, daybook.clock()
    where not exists (
        select
        from daybook.purge as p
        where p.request_id = p_request_id
    )
    on conflict on constraint purge_pkey do nothing;
    -- Batches of one purge follow one another.
    select p.*
    into strict v_purge
    from daybook.purge as p
    where p.request_id = p_request_id
    for update;
    fields := array_remove(array[
        case when v_purge.actor <> p_actor then 'actor' end,
        case when v_purge.queue <> p_queue then 'queue' end,
        case when v_purge.reason <> p_reason then 'reason' end
    ], null);
    if cardinality(fields) > 0 then
        outcome := 'conflict';
        return;
    end if;
    outcome := 'purged';
    purged := v_purge.purged;
    finished := v_purge.finished_at is not null;
    if finished then
        return;
    end if;

    select array_agg(j.job_id), array_agg(distinct j.key_hash)
    into v_jobs, v_keys
    from (
        (
            select j.job_id, j.key_hash
            from daybook.job as j
            where j.queue = p_queue
                and j.state = 'ready'
                and j.accepted_at <= v_purge.requested_at
            limit p_limit
        )
        union all
        (
            select j.job_id, j.key_hash
            from daybook.job as j
            where j.queue = p_queue
                and j.state = 'scheduled'
                and j.accepted_at <= v_purge.requested_at
            limit p_limit
        )
    ) as j;

    -- Binding, then job: a request that replaces one of these jobs either comes before, and its job goes as well, or
    -- after, and finds its key free.
    perform
    from daybook.binding as b
    where b.key_hash = any (v_keys)
    order by b.key_hash
    for update;
    v_now := daybook.clock();
    for v_job in
        select j.*
        from daybook.job as j
        where j.job_id = any (v_jobs)
            and j.queue = p_queue
            and j.state in ('scheduled', 'ready')
        order by j.job_id
        for update
    loop
        select b.*
        into v_binding
        from daybook.binding as b
        where b.key_hash = v_job.key_hash
            and b.job_id = v_job.job_id;
        if found then
            perform daybook.unbind(v_binding, 'binding.released', p_reason, p_actor, v_now);
        end if;
        delete from daybook.job as j
        where j.job_id = v_job.job_id;
        perform daybook.append_job_event(
            v_job, 'job.purged', v_now,
            daybook.member('actor', p_actor) || daybook.member('reason', p_reason)
                || daybook.member('request_id', p_request_id)
        );
        purged := purged + 1;
    end loop;

    finished := coalesce(cardinality(v_jobs), 0) = 0;
    update daybook.purge as p
    set purged = purge_jobs.purged,
        finished_at = case when purge_jobs.finished then v_now end
    where p.request_id = p_request_id;
end
$$;

grant execute on function daybook.purge_jobs to daybook_app, daybook_operator;
