set local role daybook_owner;

-- Who has a key can hash it, and so can ask about it; whoever has not cannot. Neither function returns a hash.

-- The bindings of hashes that the caller knows, with the state of the job that each stands for.
create function daybook.explain_bindings(p_key_hashes bytea[])
returns table (
    key_digest     text,
    key_preview    text,
    scope          text,
    mode           text,
    job_id         uuid,
    job_state      text,
    request_digest text,
    bound_at       timestamptz,
    expires_at     timestamptz,
    live           boolean,
    alias          boolean
)
language sql
stable
security definer
set search_path = pg_catalog, daybook, pg_temp
as $$
    select
        daybook.key_digest(b.key_hash),
        b.key_preview,
        b.scope,
        b.mode,
        b.job_id,
        j.state,
        encode(b.request_digest, 'hex'),
        b.bound_at,
        b.expires_at,
        b.expires_at > daybook.clock(),
        b.alias_of is not null
    from daybook.binding as b
    left join daybook.job as j
        on j.job_id = b.job_id
    where b.key_hash = any (p_key_hashes)
    order by b.alias_of is not null, b.key_hash
$$;

-- The sequenced events of hashes that the caller knows, in their order. The index on key_hash is a summary that skips
-- most of the ledger, which daybook.feed can't use: it has digests only.
create function daybook.explain_events(p_key_hashes bytea[])
returns setof daybook.feed
language sql
stable
security definer
set search_path = pg_catalog, daybook, pg_temp
set jit = off
set enable_seqscan = off
as $$
    select
        o.position,
        e.event_id,
        e.kind,
        e.job_id,
        e.scope,
        daybook.key_digest(e.key_hash),
        e.key_preview,
        e.body,
        e.recorded_at,
        o.sequenced_at
    from daybook.event as e
    join daybook.ledger_order as o
        on o.event_id = e.event_id
    where e.key_hash = any (p_key_hashes)
    order by o.position
$$;

grant execute on function daybook.explain_bindings, daybook.explain_events to daybook_operator;
