set local role daybook_owner;

-- Tags are a set: sorted by bytes, without repetition, so that equal sets are equal arrays.
create function daybook.valid_tags(p_tags text[])
returns boolean
language plpgsql
immutable
as $$
begin
    if cardinality(p_tags) not between 1 and 20 then
        return false;
    end if;
    for i in 1 .. cardinality(p_tags) loop
        if p_tags[i] is null
            or octet_length(p_tags[i]) not between 1 and 100
            or (i > 1 and p_tags[i] collate "C" <= p_tags[i - 1] collate "C")
        then
            return false;
        end if;
    end loop;
    return true;
end
$$;

-- The first field of a request that is out of its bounds, or null where all are in order. The Go package
-- commands refuses the same before any SQL; this stands behind it for whoever calls the functions directly.
-- It holds no sub-select, so that PostgreSQL can inline it where a batch is checked.
create function daybook.invalid_field(
    p_type                 text,
    p_payload_bytes        integer,
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
    p_request_digest       bytea
)
returns text
language sql
immutable
as $$
    select case
        when coalesce(octet_length(p_type), 0) not between 1 and 200 then 'type'
        when coalesce(p_payload_bytes, 0) not between 1 and 16777216 then 'payload'
        when coalesce(octet_length(p_queue), 0) not between 1 and 200 then 'queue'
        when coalesce(p_priority, -1) not between 0 and 100 then 'priority'
        when p_concurrency_key is not null and octet_length(p_concurrency_key) not between 1 and 256
            then 'concurrency_key'
        when p_tags is not null and not daybook.valid_tags(p_tags) then 'tags'
        when coalesce(p_attempt_budget, 0) not between 1 and 100 then 'attempt_budget'
        when p_retry_kind is null and (p_retry_initial_ms is not null or p_retry_max_ms is not null)
            then 'retry_policy'
        when p_retry_kind is not null and not coalesce(
                p_retry_kind in ('fixed', 'exponential', 'decorrelated_jitter')
                and p_retry_initial_ms between 0 and 31536000000
                and p_retry_max_ms between p_retry_initial_ms and 31536000000, false)
            then 'retry_policy'
        -- Instants go into event bodies as RFC 3339, which has four digits for the year.
        when p_run_at is not null
            and (p_run_at < '0001-01-01 00:00:00+00' or p_run_at >= '10000-01-01 00:00:00+00') then 'run_at'
        when p_deadline is not null
            and (p_deadline < '0001-01-01 00:00:00+00' or p_deadline >= '10000-01-01 00:00:00+00') then 'deadline'
        when p_deadline is not null and p_run_at is not null and p_deadline <= p_run_at then 'deadline'
        when p_execution_timeout_ms is not null and p_execution_timeout_ms not between 1 and 31536000000
            then 'execution_timeout'
        when coalesce(octet_length(p_request_digest), 0) <> 33 then 'request_digest'
        when p_mode is null then
            case
                when p_key_hash is not null or p_other_hashes is not null or p_key_preview is not null then 'key'
                when p_scope is not null then 'scope'
                when p_window_ms is not null then 'window'
                when p_max_wait_ms is not null then 'max_wait'
                when p_schedule is not null then 'schedule'
                when p_follow_up is not null then 'follow_up'
            end
        when p_mode not in ('idempotency', 'debounce', 'throttle') then 'mode'
        when coalesce(octet_length(p_key_hash), 0) <> 32 then 'key'
        when p_other_hashes is not null
            and (octet_length(p_other_hashes) = 0 or octet_length(p_other_hashes) % 32 <> 0) then 'key'
        when coalesce(octet_length(p_key_preview), 65) > 64 then 'key'
        when coalesce(octet_length(p_scope), 0) not between 1 and 256 then 'scope'
        -- All that Unicode counts as white space.
        when btrim(p_scope, e' \t\n\u000b\f\r\u0085\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006'
                '\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000') = '' then 'scope'
        when coalesce(p_window_ms, 0) not between 1 and 31536000000
            then case p_mode when 'idempotency' then 'ttl' else 'window' end
        when p_mode <> 'debounce' then
            case
                when p_max_wait_ms is not null then 'max_wait'
                when p_schedule is not null then 'schedule'
                when p_follow_up is not null then 'follow_up'
            end
        when p_max_wait_ms is not null and p_max_wait_ms not between 1 and 31536000000 then 'max_wait'
        when coalesce(p_schedule, '') not in ('reset', 'preserve') then 'schedule'
        when p_follow_up is null then 'follow_up'
    end
$$;

-- A payload as PostgreSQL stores it, or null where it is not JSON that jsonb can hold. The block is what
-- keeps a caller's transaction usable after a bad payload; it costs a subtransaction without an xid.
create function daybook.as_payload(p_payload text)
returns jsonb
language plpgsql
immutable
as $$
begin
    return p_payload::jsonb;
exception
    when data_exception or program_limit_exceeded or statement_too_complex then
        return null;
end
$$;

-- The hashes of one key under all secrets of the caller's ring, in the order in which rows are taken.
--
-- In PL/pgSQL, which keeps its plan. An SQL function with a FROM clause is planned anew in each transaction.
create function daybook.key_ring(p_key_hash bytea, p_other_hashes bytea)
returns bytea[]
language plpgsql
immutable
as $$
begin
    if p_other_hashes is null then
        return array[p_key_hash];
    end if;
    return array(
        select p_key_hash
        union
        select substring(p_other_hashes from i for 32)
        from generate_series(1, octet_length(p_other_hashes), 32) as i
        order by 1
    );
end
$$;
