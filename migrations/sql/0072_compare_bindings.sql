set local role daybook_owner;

-- Compares the bindings with what the events say they must be: those of one slice of p_slices (at most 256), by the last
-- byte of the key hash. The last event of a key decides whether it is bound.
--
-- Exact while writers go on, slice by slice: a binding changes in the transaction that appends its event, and this is
-- one statement, so it sees both or neither; whether an event has a position yet does not matter. Events of one key are in the order
-- of their ids, because an id is drawn under the lock of the binding.
--
-- One row with the counts, or one for each of the p_samples differences with the least positions. A key is told by its digest.
create function daybook.compare_bindings(p_slice integer, p_slices integer, p_samples integer)
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
            e.key_hash,
            max(e.event_id) as last_id,
            max(e.event_id) filter (where e.kind = 'enqueue.accepted') as accepted_id
        from daybook.event as e
        where e.kind in ('enqueue.accepted', 'enqueue.replaced', 'binding.expired', 'binding.released')
            and get_byte('\x00'::bytea || e.key_hash, octet_length(e.key_hash)) % p_slices = p_slice
        group by e.key_hash
    ),
    expected as (
        select
            f.key_hash, f.last_id, l.kind in ('enqueue.accepted', 'enqueue.replaced') as bound, l.job_id, l.scope, l.key_preview,
            a.recorded_at as bound_at, b.mode, b.request_digest, b.window_ms, b.expires_at, b.replaced
        from fold as f
        join daybook.event as l
            on l.event_id = f.last_id
        left join daybook.event as a
            on a.event_id = f.accepted_id
        left join lateral json_to_record(l.body) as b (
            mode text, request_digest text, window_ms bigint, expires_at timestamptz, replaced integer
        )
            on l.kind in ('enqueue.accepted', 'enqueue.replaced')
    ),
    stored as (
        select b.*
        from daybook.binding as b
        where get_byte('\x00'::bytea || b.key_hash, octet_length(b.key_hash)) % p_slices = p_slice
    ),
    compared as (
        select
            coalesce(x.key_hash, s.key_hash) as key_hash,
            coalesce(s.job_id, x.job_id) as job_id,
            x.last_id,
            case
                when s.key_hash is null then 'missing'
                when x.bound is distinct from true then 'extra'
                else 'different'
            end as difference,
            case when s.key_hash is not null and x.bound then array_remove(array[
                case when s.bound_at is distinct from x.bound_at then 'bound_at' end,
                case when s.expires_at is distinct from x.expires_at then 'expires_at' end,
                -- A binding keeps its job: a replay returns it.
                case when not exists (
                        select
                        from daybook.job as j
                        where j.job_id = s.job_id)
                    then 'job' end,
                case when s.job_id is distinct from x.job_id then 'job_id' end,
                case when s.key_preview is distinct from x.key_preview then 'key_preview' end,
                case when s.mode is distinct from x.mode then 'mode' end,
                -- During a rotation: an alias under each other hash, which points back.
                case when s.other_hashes is not null and exists (
                        select
                        from unnest(daybook.key_ring(s.key_hash, s.other_hashes)) as h (key_hash)
                        left join daybook.binding as a
                            on a.key_hash = h.key_hash
                            and a.alias_of = s.key_hash
                            and a.job_id = s.job_id
                        where h.key_hash <> s.key_hash
                            and a.key_hash is null)
                    then 'other_hashes' end,
                case when s.replaced is distinct from coalesce(x.replaced, 0) then 'replaced' end,
                case when encode(s.request_digest, 'hex') is distinct from x.request_digest then 'request_digest' end,
                case when s.scope is distinct from x.scope then 'scope' end,
                case when s.window_ms is distinct from x.window_ms then 'window_ms' end
            ], null) end as columns
        from expected as x
        full join (
            select *
            from stored
            where alias_of is null
        ) as s
            on s.key_hash = x.key_hash
        where s.key_hash is not null
            or x.bound
        union all
        select a.key_hash, a.job_id, null, 'extra', array['alias_of']
        from stored as a
        where a.alias_of is not null
            and not exists (
                select
                from daybook.binding as b
                where b.key_hash = a.alias_of
                    and b.alias_of is null
                    and a.key_hash = any (daybook.key_ring(b.key_hash, b.other_hashes))
            )
    ),
    differing as (
        select c.difference, daybook.key_digest(c.key_hash) as key_digest, c.job_id, c.columns, c.last_id, o.position
        from compared as c
        left join daybook.ledger_order as o
            on o.event_id = c.last_id
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
        d.difference, d.key_digest, d.job_id, d.columns, d.last_id, d.position
    from total as t
    left join (
        select *
        from differing
        order by position, last_id, key_digest
        limit p_samples
    ) as d
        on true
    order by d.position, d.last_id, d.key_digest
$$;

grant execute on function daybook.compare_bindings to daybook_relay, daybook_operator;
