set local role daybook_owner;

-- The events in their order, as everybody but the sequencer sees them: with the digest of the key, never its hash.
create view daybook.feed as
select
    o.position,
    e.event_id,
    e.kind,
    e.job_id,
    e.scope,
    daybook.key_digest(e.key_hash) as key_digest,
    e.key_preview,
    e.body,
    e.recorded_at,
    o.sequenced_at
from daybook.ledger_order as o
join daybook.event as e
    on e.event_id = o.event_id;

comment on view daybook.feed is 'The events in the order of their positions; key digests, never keys or full hashes.';

-- The window of positions (p_after, p_after + p_limit], one row each; of kinds that were not asked for, the position
-- alone. Positions are dense, so the window is one index range whatever it holds, and its last row says how far the
-- reader has come.
--
-- A function, because a statement can't turn the planner's alternatives off. On a ledger of a few hundred thousand
-- events it would read all of them to hash a page; and a session that made its plan when there were a dozen
-- would go through the whole table once for each row of the page, until somebody analyses it.
create function daybook.read_events(p_after bigint, p_limit bigint, p_kinds text[])
returns table (
    "position"   bigint,
    event_id     bigint,
    kind         text,
    job_id       uuid,
    scope        text,
    key_hash     bytea,
    key_preview  text,
    body         json,
    recorded_at  timestamptz,
    sequenced_at timestamptz
)
language plpgsql
stable
set search_path = pg_catalog, daybook, pg_temp
set jit = off
set enable_seqscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
begin
    return query
    select
        o.position,
        e.event_id,
        e.kind,
        e.job_id,
        e.scope,
        e.key_hash,
        e.key_preview,
        e.body,
        e.recorded_at,
        o.sequenced_at
    from daybook.ledger_order as o
    left join daybook.event as e
        on e.event_id = o.event_id
        and (p_kinds is null or e.kind = any (p_kinds))
    where o.position > p_after
        and o.position <= p_after + p_limit
    order by o.position;
end
$$;

grant execute on function daybook.read_events to daybook_relay;

-- Projections fold by key hash, and the sequencer's own bookkeeping is what lag is told from.
grant select on daybook.event, daybook.ledger_order, daybook.feed, daybook.sequencer, daybook.sequencer_gap to daybook_relay;
grant select on daybook.feed, daybook.sequencer, daybook.sequencer_gap to daybook_operator;

-- A reader's place.
create table daybook.cursor (
    name       text        not null,
    epoch      bigint      not null,
    position   bigint      not null,
    created_at timestamptz not null default clock_timestamp(),
    updated_at timestamptz not null default clock_timestamp(),
    constraint cursor_pkey primary key (name),
    constraint cursor_position_not_negative check (position >= 0)
)
with (fillfactor = 20);

comment on table daybook.cursor is 'How far each consumer group and each projection has come.';
grant select, insert, update, delete on daybook.cursor to daybook_relay;
grant select on daybook.cursor to daybook_operator;
