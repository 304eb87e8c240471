set local role daybook_owner;

-- What an operator may do with one job. Each says in its outcome what it found: done, not_found, or the reason why
-- nothing was changed.

-- Ends a job that is not finished. A worker that holds it learns so from its fence. The key stays bound: a replay of a
-- cancelled job's request is still a replay.
create function daybook.cancel_job(p_job_id uuid, p_actor text, p_reason text, out outcome text, out state text)
language plpgsql
volatile
security definer
set search_path = pg_catalog, daybook, pg_temp
set jit = off
as $$
declare
    v_job daybook.job;
    v_now timestamptz;
begin
    if daybook.invalid_act(p_actor, p_reason) is not null then
        outcome := 'invalid';
        state := daybook.invalid_act(p_actor, p_reason);
        return;
    end if;
    select j.*
    into v_job
    from daybook.job as j
    where j.job_id = p_job_id
    for no key update;
    if not found then
        outcome := 'not_found';
        return;
    end if;
    state := v_job.state;
    if v_job.state not in ('scheduled', 'ready', 'active') then
        outcome := 'finished';
        return;
    end if;
    v_now := daybook.clock();
    update daybook.job as j
    set state = 'cancelled',
        finished_at = v_now,
        fence = j.fence + 1,
        lease_expires_at = null
    where j.job_id = p_job_id;
    perform daybook.append_job_event(
        v_job, 'job.cancelled', v_now, daybook.member('actor', p_actor) || daybook.member('reason', p_reason)
    );
    outcome := 'done';
end
$$;

-- Lets a job run now that waits: for its run time, for its next attempt, for its predecessor. A debounced job's window is
-- over with that: its key is released, and the next request is new work.
create function daybook.run_job_now(p_job_id uuid, p_actor text, p_reason text, out outcome text, out state text)
language plpgsql
volatile
security definer
set search_path = pg_catalog, daybook, pg_temp
set jit = off
as $$
declare
    v_binding daybook.binding;
    v_job     daybook.job;
    v_now     timestamptz;
begin
    if daybook.invalid_act(p_actor, p_reason) is not null then
        outcome := 'invalid';
        state := daybook.invalid_act(p_actor, p_reason);
        return;
    end if;
    -- Binding, then job. Which binding it is cannot change: a job keeps its key.
    select b.*
    into v_binding
    from daybook.job as j
    join daybook.binding as b
        on b.key_hash = j.key_hash
        and b.job_id = j.job_id
        and b.mode = 'debounce'
    where j.job_id = p_job_id
    for update of b;
    select j.*
    into v_job
    from daybook.job as j
    where j.job_id = p_job_id
    for no key update;
    if not found then
        outcome := 'not_found';
        return;
    end if;
    state := v_job.state;
    if v_job.state not in ('scheduled', 'ready') then
        outcome := 'not_waiting';
        return;
    end if;
    v_now := daybook.clock();
    if v_binding.key_hash is not null then
        perform daybook.unbind(v_binding, 'binding.released', p_reason, p_actor, v_now);
    end if;
    update daybook.job as j
    set state = 'ready',
        run_at = v_now,
        after_job_id = null
    where j.job_id = p_job_id;
    perform daybook.append_job_event(
        v_job, 'job.released', v_now, daybook.member('actor', p_actor) || daybook.member('reason', p_reason)
    );
    outcome := 'done';
end
$$;

-- Releases a key before its time. The key is named by its scope and by its hash or the first bytes of it (a digest).
create function daybook.release_key(
    p_scope       text,
    p_hash_prefix bytea,
    p_actor       text,
    p_reason      text,
    out outcome   text,
    out job_id    uuid
)
language plpgsql
volatile
security definer
set search_path = pg_catalog, daybook, pg_temp
set jit = off
set enable_seqscan = off
as $$
#variable_conflict use_column
declare
    c_least   constant integer := 6;
    v_owner   bytea[];
    v_binding daybook.binding;
begin
    if daybook.invalid_act(p_actor, p_reason) is not null then
        outcome := 'invalid';
        return;
    end if;
    if coalesce(octet_length(p_hash_prefix), 0) not between c_least and 32 then
        outcome := 'invalid';
        return;
    end if;
    loop
        -- All hashes with that beginning are one range of the primary key.
        v_owner := array(
            select distinct coalesce(b.alias_of, b.key_hash)
            from daybook.binding as b
            where b.key_hash >= p_hash_prefix
                and b.key_hash <= p_hash_prefix || decode(repeat('ff', 32 - octet_length(p_hash_prefix)), 'hex')
                and b.scope = p_scope
            limit 2
        );
        if cardinality(v_owner) <> 1 then
            outcome := case cardinality(v_owner) when 0 then 'not_found' else 'ambiguous' end;
            return;
        end if;
        select b.*
        into v_binding
        from daybook.binding as b
        where b.key_hash = v_owner[1]
        for update;
        -- Gone while this waited for it: the key may have gone to another job, so look again.
        exit when found;
    end loop;
    job_id := v_binding.job_id;
    perform daybook.unbind(v_binding, 'binding.released', p_reason, p_actor, daybook.clock());
    outcome := 'done';
end
$$;

grant execute on function daybook.cancel_job, daybook.run_job_now, daybook.release_key to daybook_app, daybook_operator;
