set local role daybook_owner;

-- The decision about a batch, in one round trip. daybook.enqueue stays the authority on every outcome: what
-- is decided here for many at once is only what cannot be doubted (an equal digest on a live binding; a key
-- that was free and is now claimed; no key at all). The rest goes through daybook.enqueue one by one.
--
-- Each request is one element of every array. An element of p_tags is the text of an array, since the
-- arrays of an array must all be of one length.
--
-- With p_all_or_nothing a conflict undoes the batch, inside this statement: the caller's transaction stays
-- usable, the conflicts are appended, nothing else is written, and every 'accepted' reads 'withdrawn'. A
-- request that is invalid undoes the batch in any case, and appends nothing.
--
-- Keys are taken in the order of their hashes, whatever is done with them, so that batches over the same keys never
-- deadlock. That is why only the keys below the first one that is bound already are claimed at once: that one may have
-- to be locked, and the rest has to come after it.
create function daybook.enqueue_many(
    p_all_or_nothing       boolean,
    p_type                 text[],
    p_payload              text[],
    p_queue                text[],
    p_priority             integer[],
    p_concurrency_key      text[],
    p_tags                 text[],
    p_attempt_budget       integer[],
    p_retry_kind           text[],
    p_retry_initial_ms     bigint[],
    p_retry_max_ms         bigint[],
    p_run_at               timestamptz[],
    p_deadline             timestamptz[],
    p_execution_timeout_ms bigint[],
    p_mode                 text[],
    p_scope                text[],
    p_key_hash             bytea[],
    p_other_hashes         bytea[],
    p_key_preview          text[],
    p_window_ms            bigint[],
    p_max_wait_ms          bigint[],
    p_schedule             text[],
    p_follow_up            boolean[],
    p_request_digest       bytea[],
    p_traceparent          text,
    p_request              text[] default null,
    p_job_id_tail          text[] default null,
    out job_ids            uuid[],
    out outcomes           text[],
    out reasons            text[],
    out bound_ats          timestamptz[],
    out expires_ats        timestamptz[],
    out details            text[]
)
language plpgsql
volatile
security definer
set search_path = pg_catalog, daybook, pg_temp
set jit = off
-- A session may keep its plans from when the tables were empty; none of the statements below may ever read a
-- whole table for the sake of a few keys.
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
as $$
declare
    v_count     constant integer  := cardinality(p_type);
    v_vouched   constant boolean  := p_request is not null and p_job_id_tail is not null;
    -- How old the clock of an uncontended claim may be. A claim that took longer has waited, and is dated anew.
    c_claim_age constant interval := interval '10 milliseconds' + v_count * interval '0.2 milliseconds';
    v_now       timestamptz;
    -- By ordinal: the job of each request that is decided here, null for those that are not.
    v_job_ids   uuid[];
    -- The least hash of a key that is bound, and whose request is no plain replay.
    v_first     bytea;
    -- By ordinal: how long the key of each request is bound at first, null without a key.
    v_bound_ms  bigint[];
    v_run_ats   timestamptz[];
    v_payloads  jsonb[];
    -- By ordinal: whether a request keeps its bounds. Null where the caller vouches for all of them.
    v_valid     boolean[];
    v_result    record;
    v_xid       xid8;
    v_invalid   boolean := false;
    v_conflict  boolean := false;
begin
    job_ids := array_fill(null::uuid, array[v_count]);
    outcomes := array_fill(null::text, array[v_count]);
    reasons := outcomes;
    bound_ats := array_fill(null::timestamptz, array[v_count]);
    expires_ats := bound_ats;
    details := outcomes;
    v_bound_ms := array(
        select least(i.window_ms, i.max_wait_ms)
        from unnest(p_window_ms, p_max_wait_ms) with ordinality as i (window_ms, max_wait_ms, ordinal)
        order by i.ordinal
    );

    begin
        -- Look first: whoever repeats a batch gets its answers from one read, and writes nothing.
        v_now := daybook.clock();
        for v_result in
            select
                i.ordinal, b.job_id, b.bound_at, b.expires_at, b.mode,
                b.expires_at > v_now
                    and b.mode = i.mode
                    and b.mode <> 'debounce'
                    and b.alias_of is null
                    and b.request_digest = i.request_digest as replays,
                case
                    when i.other_hashes is null then i.key_hash
                    else (daybook.key_ring(i.key_hash, i.other_hashes))[1]
                end as first_hash
            from unnest(p_key_hash, p_other_hashes, p_mode, p_request_digest) with ordinality
                as i (key_hash, other_hashes, mode, request_digest, ordinal)
            join daybook.binding as b
                on b.key_hash = i.key_hash
        loop
            if not v_result.replays then
                v_first := least(v_first, v_result.first_hash);
                continue;
            end if;
            job_ids[v_result.ordinal] := v_result.job_id;
            outcomes[v_result.ordinal] := case v_result.mode when 'idempotency' then 'replayed' else 'coalesced' end;
            bound_ats[v_result.ordinal] := v_result.bound_at;
            expires_ats[v_result.ordinal] := v_result.expires_at;
        end loop;
        if array_position(outcomes, null) is null then
            return;
        end if;

        -- What can be decided here: a valid request, the first of its key in this batch, whose key may be claimed at
        -- once. A payload that is not JSON would end this statement; then each request is
        -- judged by itself, below.
        begin
            v_payloads := array(
                select i.payload::jsonb
                from unnest(p_payload) with ordinality as i (payload, ordinal)
                order by i.ordinal
            );
            -- See daybook.enqueue for who vouches.
            if not v_vouched then
                select
                    array_agg(daybook.invalid_field(
                        i.type, b.payload_bytes, i.queue, i.priority, i.concurrency_key, i.tags::text[],
                        i.attempt_budget, i.retry_kind, i.retry_initial_ms, i.retry_max_ms, i.run_at, i.deadline,
                        i.execution_timeout_ms, i.mode, i.scope, i.key_hash, i.other_hashes, i.key_preview, i.window_ms,
                        i.max_wait_ms, i.schedule, i.follow_up, i.request_digest
                    ) is null),
                    array_agg(daybook.request_members(
                        i.type, i.queue, i.priority, i.concurrency_key, i.tags::text[], i.attempt_budget,
                        b.payload_bytes, i.retry_kind, i.retry_initial_ms, i.retry_max_ms, i.deadline,
                        i.execution_timeout_ms, i.mode, i.scope, i.key_hash, i.key_preview, i.window_ms,
                        i.request_digest, p_traceparent
                    )),
                    array_agg(daybook.job_id_tail())
                into v_valid, p_request, p_job_id_tail
                from (
                    select i.*
                    from unnest(
                        p_type, v_payloads, p_queue, p_priority, p_concurrency_key, p_tags, p_attempt_budget,
                        p_retry_kind, p_retry_initial_ms, p_retry_max_ms, p_run_at, p_deadline, p_execution_timeout_ms,
                        p_mode, p_scope, p_key_hash, p_other_hashes, p_key_preview, p_window_ms, p_max_wait_ms,
                        p_schedule, p_follow_up, p_request_digest
                    ) with ordinality as i (
                        type, payload, queue, priority, concurrency_key, tags, attempt_budget, retry_kind,
                        retry_initial_ms, retry_max_ms, run_at, deadline, execution_timeout_ms, mode, scope, key_hash,
                        other_hashes, key_preview, window_ms, max_wait_ms, schedule, follow_up, request_digest, ordinal
                    )
                    order by i.ordinal
                ) as i
                cross join lateral (
                    select octet_length(i.payload::text) as payload_bytes
                    offset 0
                ) as b;
            end if;
            v_now := daybook.clock();
            v_job_ids := array(
                select
                    case
                        when r.outcome is null
                            and (r.key_hash is null or r.twin = 1)
                            and (r.deadline is null or r.deadline > greatest(v_now, r.run_at, case r.mode
                                when 'debounce' then v_now + r.bound_ms * interval '1 millisecond'
                            end))
                            and (r.key_hash is null or v_first is null or v_first > r.key_hash and (
                                r.other_hashes is null or v_first > all (daybook.key_ring(r.key_hash, r.other_hashes))
                            ))
                            and (v_vouched or r.valid)
                            then daybook.new_job_id(v_now, r.job_id_tail)
                    end
                from (
                    select
                        i.*,
                        row_number() over (partition by i.key_hash order by i.ordinal) as twin
                    from unnest(
                        p_run_at, p_deadline, p_mode, p_key_hash, p_other_hashes, v_bound_ms, p_job_id_tail, outcomes,
                        v_valid
                    ) with ordinality as i (
                        run_at, deadline, mode, key_hash, other_hashes, bound_ms, job_id_tail, outcome, valid, ordinal
                    )
                ) as r
                order by r.ordinal
            );
        exception
            when data_exception or program_limit_exceeded or statement_too_complex then
                v_job_ids := array_fill(null::uuid, array[v_count]);
        end;

        -- The claim, in key-hash order over the whole batch and, in a rotation, over all secrets of the ring. All of these
        -- keys were free a moment ago. Where one is lost all are given back, since whoever won it may wait for
        -- another of them; then they are taken one by one, below. So the unique index may as well raise, which is a
        -- third cheaper than asking it not to.
        begin
            insert into daybook.binding (
                key_hash, job_id, bound_at, expires_at, run_at, window_ms, mode, scope, key_preview, request_digest,
                alias_of, other_hashes
            )
            select
                h.key_hash, i.job_id, v_now, v_now + i.bound_ms * interval '1 millisecond', i.run_at, i.window_ms,
                i.mode, i.scope, i.key_preview, i.request_digest, nullif(i.key_hash, h.key_hash),
                case when h.key_hash = i.key_hash then i.other_hashes end
            from unnest(
                v_job_ids, p_key_hash, p_other_hashes, p_mode, p_scope, p_key_preview, p_window_ms, v_bound_ms,
                p_run_at, p_request_digest
            ) as i (
                job_id, key_hash, other_hashes, mode, scope, key_preview, window_ms, bound_ms, run_at, request_digest
            )
            cross join lateral unnest(
                case
                    when i.other_hashes is null then array[i.key_hash]
                    else daybook.key_ring(i.key_hash, i.other_hashes)
                end
            ) as h (key_hash)
            where i.job_id is not null
                and i.key_hash is not null
            order by h.key_hash;
        exception
            when unique_violation then
                v_job_ids := array(
                    select case when i.key_hash is null then i.job_id end
                    from unnest(v_job_ids, p_key_hash) with ordinality as i (job_id, key_hash, ordinal)
                    order by i.ordinal
                );
        end;

        -- A debounced job waits for its window, the others for the run time that was asked for.
        v_run_ats := array(
            select coalesce(
                i.run_at,
                case i.mode when 'debounce' then v_now + i.bound_ms * interval '1 millisecond' else v_now end
            )
            from unnest(p_run_at, p_mode, v_bound_ms) with ordinality as i (run_at, mode, bound_ms, ordinal)
            order by i.ordinal
        );

        -- The claim may have waited for another transaction to roll back: then its clock is that old. A
        -- deadline that passed meanwhile gives its key back and is refused below.
        if daybook.clock() - v_now > c_claim_age then
            v_now := daybook.clock();
            v_run_ats := array(
                select coalesce(
                    i.run_at,
                    case i.mode when 'debounce' then v_now + i.bound_ms * interval '1 millisecond' else v_now end
                )
                from unnest(p_run_at, p_mode, v_bound_ms) with ordinality as i (run_at, mode, bound_ms, ordinal)
                order by i.ordinal
            );
            delete from daybook.binding as b
            using unnest(v_job_ids, p_key_hash, p_other_hashes, p_deadline, v_run_ats)
                as i (job_id, key_hash, other_hashes, deadline, run_at)
            where i.deadline <= greatest(v_now, i.run_at)
                and b.key_hash = any (
                    case
                        when i.other_hashes is null then array[i.key_hash]
                        else daybook.key_ring(i.key_hash, i.other_hashes)
                    end
                )
                and b.job_id = i.job_id;
            v_job_ids := array(
                select case when i.deadline <= greatest(v_now, i.run_at) then null else i.job_id end
                from unnest(v_job_ids, p_deadline, v_run_ats) with ordinality
                    as i (job_id, deadline, run_at, ordinal)
                order by i.ordinal
            );
            update daybook.binding as b
            set bound_at = v_now,
                expires_at = v_now + i.bound_ms * interval '1 millisecond'
            from unnest(v_job_ids, p_key_hash, p_other_hashes, v_bound_ms)
                as i (job_id, key_hash, other_hashes, bound_ms)
            where i.job_id is not null
                and b.key_hash = any (
                    case
                        when i.other_hashes is null then array[i.key_hash]
                        else daybook.key_ring(i.key_hash, i.other_hashes)
                    end
                )
                and b.job_id = i.job_id;
        end if;

        insert into daybook.job (
            job_id, run_at, accepted_at, deadline, key_hash, execution_timeout_ms, retry_initial_ms, retry_max_ms,
            priority, attempt_budget, state, queue, type, concurrency_key, retry_kind, tags, payload
        )
        select
            i.job_id, i.run_at, v_now, i.deadline, i.key_hash, i.execution_timeout_ms, i.retry_initial_ms,
            i.retry_max_ms, i.priority, i.attempt_budget, case when i.run_at > v_now then 'scheduled' else 'ready' end,
            i.queue, i.type, i.concurrency_key, i.retry_kind, i.tags::text[], i.payload
        from unnest(
            v_job_ids, p_type, v_payloads, p_queue, p_priority, p_concurrency_key, p_tags, p_attempt_budget,
            p_retry_kind, p_retry_initial_ms, p_retry_max_ms, v_run_ats, p_deadline, p_execution_timeout_ms, p_key_hash
        ) with ordinality as i (
            job_id, type, payload, queue, priority, concurrency_key, tags, attempt_budget, retry_kind,
            retry_initial_ms, retry_max_ms, run_at, deadline, execution_timeout_ms, key_hash, ordinal
        )
        where i.job_id is not null
        order by i.ordinal;

        -- The xid is there before the ids are drawn: see daybook.sequence. A batch of replays takes none.
        if array_remove(v_job_ids, null) <> '{}' then
            v_xid := pg_current_xact_id();
        end if;
        insert into daybook.event (recorded_at, job_id, key_hash, kind, scope, key_preview, body)
        select
            v_now, i.job_id, i.key_hash, 'enqueue.accepted', i.scope, i.key_preview,
            daybook.accepted_body(
                i.job_id, i.request, i.run_at, v_now + i.bound_ms * interval '1 millisecond', null
            )
        from unnest(
            v_job_ids, v_run_ats, p_scope, p_key_hash, p_key_preview, v_bound_ms, p_request
        ) with ordinality as i (
            job_id, run_at, scope, key_hash, key_preview, bound_ms, request, ordinal
        )
        where i.job_id is not null
        order by i.ordinal;

        select
            array_agg(coalesce(i.job_id, i.found)),
            array_agg(case when i.job_id is not null then 'accepted' else i.outcome end),
            array_agg(case when i.job_id is not null then v_now else i.bound_at end),
            array_agg(
                case
                    when i.job_id is not null then v_now + i.bound_ms * interval '1 millisecond'
                    else i.expires_at
                end
            )
        into job_ids, outcomes, bound_ats, expires_ats
        from (
            select i.*
            from unnest(v_job_ids, job_ids, outcomes, bound_ats, expires_ats, v_bound_ms) with ordinality
                as i (job_id, found, outcome, bound_at, expires_at, bound_ms, ordinal)
            order by i.ordinal
        ) as i;
        if array_position(outcomes, null) is null then
            return;
        end if;

        -- Twins, keys owned by somebody, keys lost in a race, and whatever is invalid.
        for v_result in
            select i.ordinal, d.*
            from (
                select i.*
                from unnest(
                    p_type, p_payload, p_queue, p_priority, p_concurrency_key, p_tags, p_attempt_budget, p_retry_kind,
                    p_retry_initial_ms, p_retry_max_ms, p_run_at, p_deadline, p_execution_timeout_ms, p_mode, p_scope,
                    p_key_hash, p_other_hashes, p_key_preview, p_window_ms, p_max_wait_ms, p_schedule, p_follow_up,
                    p_request_digest, p_request, p_job_id_tail, outcomes
                ) with ordinality as i (
                    type, payload, queue, priority, concurrency_key, tags, attempt_budget, retry_kind,
                    retry_initial_ms, retry_max_ms, run_at, deadline, execution_timeout_ms, mode, scope,
                    key_hash, other_hashes, key_preview, window_ms, max_wait_ms, schedule, follow_up,
                    request_digest, request, job_id_tail, outcome, ordinal
                )
                where i.outcome is null
                order by (daybook.key_ring(i.key_hash, i.other_hashes))[1], i.ordinal
                offset 0
            ) as i
            cross join lateral daybook.enqueue(
                i.type, i.payload, i.queue, i.priority, i.concurrency_key, i.tags::text[], i.attempt_budget,
                i.retry_kind, i.retry_initial_ms, i.retry_max_ms, i.run_at, i.deadline, i.execution_timeout_ms,
                i.mode, i.scope, i.key_hash, i.other_hashes, i.key_preview, i.window_ms, i.max_wait_ms, i.schedule,
                i.follow_up, i.request_digest, p_traceparent, case when v_vouched then i.request end,
                case when v_vouched then i.job_id_tail end
            ) as d
        loop
            job_ids[v_result.ordinal] := v_result.job_id;
            outcomes[v_result.ordinal] := v_result.outcome;
            reasons[v_result.ordinal] := v_result.reason;
            bound_ats[v_result.ordinal] := v_result.bound_at;
            expires_ats[v_result.ordinal] := v_result.expires_at;
            details[v_result.ordinal] := v_result.detail::text;
            v_invalid := v_invalid or v_result.outcome = 'invalid';
            v_conflict := v_conflict or v_result.outcome = 'conflict_rejected';
        end loop;

        if v_invalid or (v_conflict and p_all_or_nothing) then
            raise sqlstate 'DB001';
        end if;
        return;
    exception
        when sqlstate 'DB001' then
            null;
    end;

    -- Everything above is undone, except what the variables hold.
    outcomes := array_replace(outcomes, 'accepted', 'withdrawn');
    if v_invalid then
        return;
    end if;
    -- A conflict with a twin has no owner any more, and nothing is recorded for it.
    perform daybook.record_rejection(
        decode(i.detail::json ->> 'key_hash', 'hex'), i.job_id, 'conflict', i.type, i.queue, i.mode,
        array(select json_array_elements_text(i.detail::json -> 'fields')), i.request_digest, p_traceparent
    )
    from (
        select i.*
        from unnest(job_ids, outcomes, details, p_type, p_queue, p_mode, p_request_digest) with ordinality
            as i (job_id, outcome, detail, type, queue, mode, request_digest, ordinal)
        where i.outcome = 'conflict_rejected'
        order by i.detail::json ->> 'key_hash', i.ordinal
        offset 0
    ) as i;
end
$$;

grant execute on function daybook.enqueue_many to daybook_app;
