set local role daybook_owner;

-- Upkeep, in batches that are short and pass over whatever somebody holds: no enqueue ever waits for it longer than for
-- one batch, and none of it waits for an enqueue.

-- Removes at most p_limit expired bindings, from the place where the last batch ended, and says where this one did: what it
-- has passed over, and what it has removed but no vacuum has yet, is not read again by the next. A debounced binding stays
-- as long as its job waits for its turn: the next request must find it (window_elapsed_pending).
create function daybook.expire_bindings(
    p_after_expires  timestamptz,
    p_limit          integer,
    out expired      integer,
    out last_expires timestamptz
)
language plpgsql
volatile
security definer
set search_path = pg_catalog, daybook, pg_temp
set jit = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
-- SKIP LOCKED may wait all the same, see commands/DECISION.md. This ends the wait before it can become a deadlock; the Go
-- package then calls again.
set lock_timeout = '100ms'
as $$
declare
    v_now    timestamptz := daybook.clock();
    v_hashes bytea[];
    v_xid    xid8;
begin
    -- Locked first, and read in a new statement: a refusal that was recorded until the lock goes with its binding.
    with picked as materialized (
        select b.key_hash, b.expires_at
        from daybook.binding as b
        where b.expires_at <= v_now
            and b.expires_at >= coalesce(p_after_expires, '-infinity')
            and b.alias_of is null
            and (b.mode <> 'debounce' or not exists (
                select
                from daybook.job as j
                where j.job_id = b.job_id
                    and j.state in ('scheduled', 'ready')
                    and j.attempt = 0
            ))
        order by b.expires_at
        limit coalesce(p_limit, 0)
        for update skip locked
    )
    select array_agg(p.key_hash), count(*), max(p.expires_at)
    into v_hashes, expired, last_expires
    from picked as p;
    if expired = 0 then
        return;
    end if;

    v_xid := pg_current_xact_id();
    with gone as (
        delete from daybook.binding as b
        where b.key_hash = any (v_hashes)
        returning b.*
    ),
    aliases as (
        delete from daybook.binding as b
        using (
            select h.key_hash, g.key_hash as alias_of
            from gone as g
            cross join lateral unnest(daybook.key_ring(g.key_hash, g.other_hashes)) as h (key_hash)
            where g.other_hashes is not null
        ) as a
        where b.key_hash = a.key_hash
            and b.alias_of = a.alias_of
    ),
    forgotten as (
        delete from daybook.rejection as r
        where r.key_hash = any (v_hashes)
    )
    insert into daybook.event (recorded_at, job_id, key_hash, kind, scope, key_preview, body)
    select
        v_now, g.job_id, g.key_hash, 'binding.expired', g.scope, g.key_preview,
        daybook.unbound_body((
            g.key_hash, g.job_id, g.bound_at, g.expires_at, g.run_at, g.window_ms, g.replaced, g.mode, g.scope,
            g.key_preview, g.request_digest, g.alias_of, g.other_hashes
        )::daybook.binding, null, null)
    from gone as g
    order by g.expires_at, g.key_hash;
end
$$;

-- Removes finished jobs whose retention is over, from the place where the last batch ended, and says where this one did.
-- A live binding keeps its job: a replay returns it. An expired one does not, and goes with the job.
create function daybook.prune_jobs(
    p_retention_ms    bigint,
    p_after_finished  timestamptz,
    p_after_job_id    uuid,
    p_limit           integer,
    out pruned        integer,
    out looked        integer,
    out last_finished timestamptz,
    out last_job_id   uuid
)
language plpgsql
volatile
security definer
set search_path = pg_catalog, daybook, pg_temp
set jit = off
set enable_seqscan = off
set lock_timeout = '100ms'
as $$
declare
    v_now     timestamptz := daybook.clock();
    v_job     record;
    v_binding daybook.binding;
begin
    pruned := 0;
    looked := 0;
    for v_job in
        select j.job_id, j.key_hash, j.finished_at
        from daybook.job as j
        where j.state in ('succeeded', 'failed', 'cancelled')
            and j.finished_at <= v_now - p_retention_ms * interval '1 millisecond'
            and (j.finished_at, j.job_id) > (
                coalesce(p_after_finished, '-infinity'), coalesce(p_after_job_id, '00000000-0000-0000-0000-000000000000')
            )
        order by j.finished_at, j.job_id
        limit p_limit
    loop
        looked := looked + 1;
        last_finished := v_job.finished_at;
        last_job_id := v_job.job_id;

        -- Binding, then job, each only where nobody holds it.
        if v_job.key_hash is not null then
            select b.*
            into v_binding
            from daybook.binding as b
            where b.key_hash = v_job.key_hash
                and b.job_id = v_job.job_id;
            if found then
                continue when v_binding.expires_at > v_now;
                perform
                from daybook.binding as b
                where b.key_hash = v_job.key_hash
                    and b.job_id = v_job.job_id
                for update skip locked;
                continue when not found;
                perform daybook.unbind(v_binding, 'binding.expired', null, null, v_now);
            end if;
        end if;
        delete from daybook.job as j
        where j.job_id in (
            select d.job_id
            from daybook.job as d
            where d.job_id = v_job.job_id
                and d.state in ('succeeded', 'failed', 'cancelled')
            for update skip locked
        );
        if found then
            pruned := pruned + 1;
        end if;
    end loop;
end
$$;

grant execute on function daybook.expire_bindings, daybook.prune_jobs to daybook_app;
