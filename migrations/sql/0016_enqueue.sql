set local role daybook_owner;

-- The decision about one request.
--
-- It never raises because of what was asked: an invalid request and a conflict are outcomes, so that the
-- caller's transaction stays usable. What it does raise (40001, 40P01, 55P03, 57014) is about the moment, and
-- leaves nothing half-written, since all of it happens in one statement.
--
-- Lock order, here and everywhere: binding, then job, then event.
--
-- p_request holds the members of the event's body that are the caller's, rendered, and p_job_id_tail the random part of
-- the job's id. They are the Go package's: whoever sends p_request vouches for what is in it, and for the bounds of all
-- other arguments.
--
-- PL/pgSQL prepares each expression that it comes to once more in each transaction. So what every new key passes by is
-- kept short: what is only for a key that has a binding stands inside one branch.
-- A named type, because of a function with out parameters PL/pgSQL looks up the columns in every call.
create type daybook.decision as (
    job_id     uuid,
    outcome    text,
    reason     text,
    bound_at   timestamptz,
    expires_at timestamptz,
    detail     json
);

create function daybook.enqueue(
    p_type                 text,
    p_payload              text,
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
    p_scope                text,
    p_key_hash             bytea,
    p_other_hashes         bytea,
    p_key_preview          text,
    p_window_ms            bigint,
    p_max_wait_ms          bigint,
    p_schedule             text,
    p_follow_up            boolean,
    p_request_digest       bytea,
    p_traceparent          text,
    p_request              text default null,
    p_job_id_tail          text default null
)
returns daybook.decision
language plpgsql
volatile
security definer
set search_path = pg_catalog, daybook, pg_temp
set jit = off
-- A session may keep its plans from when the tables were empty, even vacuumed empty, when reading all of nothing is the
-- cheapest plan of all: then each call would read a table that has grown since.
set enable_seqscan = off
as $$
declare
    v_binding       daybook.binding;
    v_hashes        bytea[];
    v_now           timestamptz;
    v_expires_at    timestamptz;
    v_run_at        timestamptz;
    v_job_id        uuid;
    v_bound         boolean;
    v_payload       jsonb;
    v_payload_bytes integer;
    v_field         text;
    v_fields        text[];
    v_owner         record;
    v_pending       record;
    v_claimed       integer;
    v_debounce      daybook.decision;
    v_after_job_id  uuid;
    v_xid           xid8;
begin
    -- Each round looks, judges what it sees, and claims what is free. A round begins anew only where another
    -- transaction has meanwhile committed a change to this very key.
    loop
        -- Look first, without a lock: a replay leaves nothing behind, not even on a busy key.
        if p_key_hash is not null and p_other_hashes is null then
            select b.*
            into v_binding
            from daybook.binding as b
            where b.key_hash = p_key_hash;
        elsif p_key_hash is not null then
            v_hashes := daybook.key_ring(p_key_hash, p_other_hashes);
            select b.*
            into v_binding
            from daybook.binding as b
            where b.key_hash = any (v_hashes)
            order by b.expires_at desc, b.key_hash = p_key_hash desc
            limit 1;
        end if;

        -- A free key with a request that is vouched for passes all of this by.
        if found or p_request is null then
            -- Equal digests prove sameness and spare the rest. Unequal ones prove nothing. An alias has them as its binding has,
            -- and nothing is there where nothing was found.
            if v_binding.request_digest = p_request_digest
                and v_binding.mode = p_mode
                and p_mode <> 'debounce'
                and v_binding.expires_at > daybook.clock()
            then
                return row(
                    v_binding.job_id, case p_mode when 'idempotency' then 'replayed' else 'coalesced' end, null,
                    v_binding.bound_at, v_binding.expires_at, null
                )::daybook.decision;
            end if;
            v_bound := found;
            if v_binding.alias_of is not null then
                select b.*
                into v_binding
                from daybook.binding as b
                where b.key_hash = v_binding.alias_of;
                -- Gone between the two statements.
                continue when not found;
            end if;

            if p_request is null then
                -- The block keeps the caller's transaction usable after a payload that is not JSON.
                begin
                    v_payload := p_payload::jsonb;
                exception
                    when data_exception or program_limit_exceeded or statement_too_complex then
                        null;
                end;
                v_payload_bytes := octet_length(v_payload::text);
                v_field := daybook.invalid_field(
                    p_type, v_payload_bytes, p_queue, p_priority, p_concurrency_key, p_tags, p_attempt_budget,
                    p_retry_kind, p_retry_initial_ms, p_retry_max_ms, p_run_at, p_deadline, p_execution_timeout_ms,
                    p_mode, p_scope, p_key_hash, p_other_hashes, p_key_preview, p_window_ms, p_max_wait_ms, p_schedule,
                    p_follow_up, p_request_digest
                );
                if v_field is null then
                    p_request := daybook.request_members(
                        p_type, p_queue, p_priority, p_concurrency_key, p_tags, p_attempt_budget, v_payload_bytes,
                        p_retry_kind, p_retry_initial_ms, p_retry_max_ms, p_deadline, p_execution_timeout_ms, p_mode,
                        p_scope, p_key_hash, p_key_preview, p_window_ms, p_request_digest, p_traceparent
                    );
                    p_job_id_tail := daybook.job_id_tail();
                end if;
            elsif v_payload is null then
                v_payload := p_payload::jsonb;
            end if;

            v_fields := null;
            if v_bound and p_mode <> 'debounce' and v_binding.expires_at > daybook.clock() then
                -- Binding and job in one statement, so as they were at one moment: a debounced owner may be replaced
                -- just now.
                select
                    b as binding,
                    daybook.differing_fields(
                        b, p_type, v_payload, p_queue, p_priority, p_concurrency_key, p_tags, p_attempt_budget,
                        p_retry_kind, p_retry_initial_ms, p_retry_max_ms, p_run_at, p_deadline, p_execution_timeout_ms,
                        p_mode, p_window_ms
                    ) as fields
                into v_owner
                from daybook.binding as b
                where b.key_hash = v_binding.key_hash
                    and b.job_id = v_binding.job_id;
                continue when not found;
                v_binding := v_owner.binding;
                v_fields := v_owner.fields;
                if v_fields is null then
                    return row(
                        v_binding.job_id, case p_mode when 'idempotency' then 'replayed' else 'coalesced' end, null,
                        v_binding.bound_at, v_binding.expires_at, null
                    )::daybook.decision;
                end if;
            end if;

            -- Only now: what was accepted once must replay, whatever has become invalid since.
            if v_field is not null then
                return row(null, 'invalid', v_field, null, null, null)::daybook.decision;
            end if;

            if v_bound and p_mode = 'debounce' then
                -- Nearly always the binding is live and its job pending: then both are locked, the binding first, and after
                -- that the clock is read. Otherwise nothing is locked here, since a refusal may be known already.
                select b.bound_at, b.expires_at, b.replaced, b.request_digest, b.scope, b.key_preview
                into v_owner
                from daybook.binding as b
                where b.key_hash = v_binding.key_hash
                    and b.job_id = v_binding.job_id
                    and b.mode = 'debounce'
                    and b.expires_at > daybook.clock()
                    and exists (
                        select
                        from daybook.job as j
                        where j.job_id = b.job_id
                            and j.state in ('scheduled', 'ready')
                            and j.attempt = 0
                    )
                for no key update;
                if found then
                    -- Never waits, and never holds a job that has begun: see daybook.debounce.
                    select j.run_at, j.after_job_id
                    into v_pending
                    from daybook.job as j
                    where j.job_id = v_binding.job_id
                        and j.state in ('scheduled', 'ready')
                        and j.attempt = 0
                    for no key update skip locked;
                end if;
                v_now := daybook.clock();
                if not found or v_owner.expires_at <= v_now then
                    v_debounce := daybook.debounce(
                        v_binding, p_type, p_queue, p_run_at, p_deadline, p_window_ms, p_max_wait_ms, p_follow_up,
                        p_request_digest, p_traceparent
                    );
                    if v_debounce.outcome = 'free' then
                        v_after_job_id := v_debounce.job_id;
                        continue;
                    end if;
                    continue when v_debounce.outcome = 'retry';
                    if v_debounce.outcome <> 'pending' then
                        return v_debounce;
                    end if;
                    -- Locked by now, so they stay as they are read here.
                    select b.bound_at, b.expires_at, b.replaced, b.request_digest, b.scope, b.key_preview
                    into v_owner
                    from daybook.binding as b
                    where b.key_hash = v_binding.key_hash;
                    select j.run_at, j.after_job_id
                    into v_pending
                    from daybook.job as j
                    where j.job_id = v_binding.job_id;
                    v_now := daybook.clock();
                end if;

                if p_schedule = 'preserve' then
                    v_expires_at := v_owner.expires_at;
                    v_run_at := v_pending.run_at;
                else
                    v_expires_at := least(
                        v_now + p_window_ms * interval '1 millisecond',
                        v_owner.bound_at + p_max_wait_ms * interval '1 millisecond'
                    );
                    v_run_at := coalesce(p_run_at, v_expires_at);
                end if;
                if p_deadline <= greatest(v_now, v_run_at) then
                    return row(null, 'invalid', 'deadline', null, null, null)::daybook.decision;
                end if;
                -- Who holds a row has an xid, so it is there before the id of the event is drawn: see daybook.sequence.
                with rebound as (
                    update daybook.binding as b
                    set expires_at = v_expires_at,
                        run_at = p_run_at,
                        window_ms = p_window_ms,
                        replaced = b.replaced + 1,
                        request_digest = p_request_digest
                    where b.key_hash = v_binding.key_hash
                ),
                replaced as (
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
                        payload = v_payload
                    where j.job_id = v_binding.job_id
                )
                insert into daybook.event (recorded_at, job_id, key_hash, kind, scope, key_preview, body)
                values (
                    v_now, v_binding.job_id, v_binding.key_hash, 'enqueue.replaced', v_owner.scope, v_owner.key_preview,
                    daybook.replaced_body(
                        daybook.accepted_body(
                            v_binding.job_id, p_request, v_run_at, v_expires_at, v_pending.after_job_id
                        ),
                        v_owner.replaced + 1, v_owner.request_digest, v_pending.run_at
                    )
                );
                return row(
                    v_binding.job_id, 'replaced', null, v_owner.bound_at, v_expires_at, null
                )::daybook.decision;
            end if;

            if v_bound then
                if v_fields is not null then
                    -- A refusal that is known already writes nothing, so it must not lock either.
                    perform
                    from daybook.rejection as r
                    join daybook.binding as b
                        on b.key_hash = r.key_hash
                        and b.job_id = v_binding.job_id
                    where r.key_hash = v_binding.key_hash
                        and r.request_digest = p_request_digest
                        and r.reason = 'conflict';
                    if not found then
                        -- Who waits here for another transaction may find the key in other hands afterwards, or expired.
                        select b.*
                        into v_binding
                        from daybook.binding as b
                        where b.key_hash = v_binding.key_hash
                            and b.job_id = v_binding.job_id
                        for no key update;
                        continue when not found or v_binding.expires_at <= daybook.clock();
                        v_fields := daybook.differing_fields(
                            v_binding, p_type, v_payload, p_queue, p_priority, p_concurrency_key, p_tags, p_attempt_budget,
                            p_retry_kind, p_retry_initial_ms, p_retry_max_ms, p_run_at, p_deadline, p_execution_timeout_ms,
                            p_mode, p_window_ms
                        );
                        perform daybook.record_rejection(
                            v_binding.key_hash, v_binding.job_id, 'conflict', p_type, p_queue, p_mode, v_fields,
                            p_request_digest, p_traceparent
                        );
                    end if;
                    return row(
                        v_binding.job_id, 'conflict_rejected', null, v_binding.bound_at, v_binding.expires_at,
                        json_build_object(
                            'key_hash', encode(v_binding.key_hash, 'hex'),
                            'key_preview', v_binding.key_preview,
                            'mode', v_binding.mode,
                            'state', (
                                select j.state
                                from daybook.job as j
                                where j.job_id = v_binding.job_id
                            ),
                            'fields', v_fields,
                            'request_digest', encode(v_binding.request_digest, 'hex')
                        )
                    )::daybook.decision;
                end if;

                -- Expired. The row is there, so it can be locked; then the clock is read, and the row is judged again.
                -- Taken away, the key is free, and the next round claims it like any other.
                select b.*
                into v_binding
                from daybook.binding as b
                where b.key_hash = v_binding.key_hash
                    and b.alias_of is null
                for update;
                if found then
                    v_now := daybook.clock();
                    if v_binding.expires_at <= v_now then
                        -- Judged before anything is written: a refused request leaves nothing behind.
                        if p_deadline <= v_now then
                            return row(null, 'invalid', 'deadline', null, null, null)::daybook.decision;
                        end if;
                        perform daybook.unbind(v_binding, 'binding.expired', null, null, v_now);
                    end if;
                end if;
                continue;
            end if;
        end if;

        v_now := daybook.clock();
        v_expires_at := v_now + least(p_window_ms, p_max_wait_ms) * interval '1 millisecond';
        -- A debounced job waits for its window, the others for the run time that was asked for.
        v_run_at := coalesce(p_run_at, case p_mode when 'debounce' then v_expires_at else v_now end);
        if p_deadline is not null then
            if p_deadline <= greatest(v_now, v_run_at) then
                return row(null, 'invalid', 'deadline', null, null, null)::daybook.decision;
            end if;
        end if;
        v_job_id := daybook.new_job_id(v_now, p_job_id_tail);

        -- The unique key arbitrates. Who loses reads again in a new statement: in this one the winner's row is invisible.
        if p_key_hash is not null and p_other_hashes is null then
            -- Claim, job and event in one. A claim that took longer than usual may have waited for another transaction
            -- to roll back: then its clock is that old, and nothing but the claim is written here.
            with claimed as (
                insert into daybook.binding (
                    key_hash, job_id, bound_at, expires_at, run_at, window_ms, mode, scope, key_preview, request_digest
                )
                values (
                    p_key_hash, v_job_id, v_now, v_expires_at, p_run_at, p_window_ms, p_mode, p_scope,
                    p_key_preview, p_request_digest
                )
                on conflict on constraint binding_pkey do nothing
                returning daybook.clock() as at
            ),
            accepted as (
                insert into daybook.job (
                    job_id, run_at, accepted_at, deadline, key_hash, after_job_id, execution_timeout_ms, retry_initial_ms,
                    retry_max_ms, priority, attempt_budget, state, queue, type, concurrency_key, retry_kind, tags, payload
                )
                select
                    v_job_id, v_run_at, v_now, p_deadline, p_key_hash, v_after_job_id, p_execution_timeout_ms,
                    p_retry_initial_ms, p_retry_max_ms, p_priority, p_attempt_budget,
                    case when v_run_at > v_now then 'scheduled' else 'ready' end, p_queue, p_type, p_concurrency_key,
                    p_retry_kind, p_tags, coalesce(v_payload, p_payload::jsonb)
                from claimed as c
                where c.at - v_now <= interval '10 milliseconds'
                returning job_id
            )
            insert into daybook.event (recorded_at, job_id, key_hash, kind, scope, key_preview, body)
            select
                v_now, a.job_id, p_key_hash, 'enqueue.accepted', p_scope, p_key_preview,
                daybook.accepted_body(a.job_id, p_request, v_run_at, v_expires_at, v_after_job_id)
            from accepted as a;
            if found then
                return row(v_job_id, 'accepted', null, v_now, v_expires_at, null)::daybook.decision;
            end if;
            perform
            from daybook.binding as b
            where b.key_hash = p_key_hash
                and b.job_id = v_job_id;
            continue when not found;
        elsif p_key_hash is not null then
            -- In a rotation a unique index cannot arbitrate between two hashes of one key: so the key is claimed
            -- under each secret of the ring, in the order of the hashes, and counts as claimed only where all rows
            -- are ours.
            insert into daybook.binding (
                key_hash, job_id, bound_at, expires_at, run_at, window_ms, mode, scope, key_preview, request_digest,
                alias_of, other_hashes
            )
            select
                h.key_hash, v_job_id, v_now, v_expires_at, p_run_at, p_window_ms, p_mode, p_scope,
                p_key_preview, p_request_digest, nullif(p_key_hash, h.key_hash),
                case when h.key_hash = p_key_hash then p_other_hashes end
            from unnest(v_hashes) with ordinality as h (key_hash, ordinal)
            order by h.ordinal
            on conflict on constraint binding_pkey do nothing;
            get diagnostics v_claimed = row_count;
            if v_claimed < cardinality(v_hashes) then
                delete from daybook.binding as b
                where b.key_hash = any (v_hashes)
                    and b.job_id = v_job_id;
                continue;
            end if;
            exit when daybook.clock() - v_now <= interval '10 milliseconds';
        else
            exit;
        end if;

        -- Claimed after a wait, and dated anew.
        v_now := daybook.clock();
        v_expires_at := v_now + least(p_window_ms, p_max_wait_ms) * interval '1 millisecond';
        v_run_at := coalesce(p_run_at, case p_mode when 'debounce' then v_expires_at else v_now end);
        if p_deadline <= greatest(v_now, v_run_at) then
            delete from daybook.binding as b
            where b.key_hash = any (coalesce(v_hashes, array[p_key_hash]));
            return row(null, 'invalid', 'deadline', null, null, null)::daybook.decision;
        end if;
        update daybook.binding as b
        set bound_at = v_now,
            expires_at = v_expires_at
        where b.key_hash = any (coalesce(v_hashes, array[p_key_hash]));
        exit;
    end loop;

    -- The xid is there before the id is drawn: see daybook.sequence. A claim has taken one.
    if p_mode is null then
        v_xid := pg_current_xact_id();
    end if;
    with accepted as (
        insert into daybook.job (
            job_id, run_at, accepted_at, deadline, key_hash, after_job_id, execution_timeout_ms, retry_initial_ms,
            retry_max_ms, priority, attempt_budget, state, queue, type, concurrency_key, retry_kind, tags, payload
        )
        values (
            v_job_id, v_run_at, v_now, p_deadline, p_key_hash, v_after_job_id, p_execution_timeout_ms,
            p_retry_initial_ms, p_retry_max_ms, p_priority, p_attempt_budget,
            case when v_run_at > v_now then 'scheduled' else 'ready' end, p_queue, p_type, p_concurrency_key,
            p_retry_kind, p_tags, coalesce(v_payload, p_payload::jsonb)
        )
    )
    insert into daybook.event (recorded_at, job_id, key_hash, kind, scope, key_preview, body)
    values (
        v_now, v_job_id, p_key_hash, 'enqueue.accepted', p_scope, p_key_preview,
        daybook.accepted_body(v_job_id, p_request, v_run_at, v_expires_at, v_after_job_id)
    );
    return row(v_job_id, 'accepted', null, v_now, v_expires_at, null)::daybook.decision;
end
$$;

grant execute on function daybook.enqueue to daybook_app;
