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
-- would go through the whole table once for each row of the page, until somebody analyses it. And a plan for any window
-- takes it for a part of the table, so that from a million events on it would start workers, for twenty milliseconds, to
-- fetch and sort what the index has in order.
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
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set max_parallel_workers_per_gather = 0
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

-- The position after which a reader begins who wants what was decided at or after an instant: the one before the first
-- such event. Where there is none, it is the last position given.
--
-- Events are decided in another order than that of their positions, and there is no index for it. But none is
-- sequenced before it is decided, and sequenced_at ascends with the positions. So a binary search over these, which are
-- dense, finds where looking has to begin. From there it is as far as events were sequenced late: a few as a rule, a whole
-- ledger where nobody has read it yet.
create function daybook.position_before(p_instant timestamptz)
returns bigint
language plpgsql
stable
security definer
set search_path = pg_catalog, daybook, pg_temp
set jit = off
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set plan_cache_mode = force_generic_plan
as $$
declare
    v_head   bigint;
    v_low    bigint := 0; -- sequenced before the instant, or no position
    v_high   bigint;      -- what is beyond was not
    v_middle bigint;
    v_before boolean;
    v_first  bigint;
begin
    select s.position
    into v_head
    from daybook.sequencer as s;
    v_high := v_head;
    while v_low < v_high loop
        v_middle := (v_low + v_high + 1) / 2;
        select o.sequenced_at < p_instant
        into v_before
        from daybook.ledger_order as o
        where o.position = v_middle;
        if v_before then
            v_low := v_middle;
        else
            v_high := v_middle - 1;
        end if;
    end loop;

    select o.position
    into v_first
    from daybook.ledger_order as o
    join daybook.event as e
        on e.event_id = o.event_id
    where o.position > v_low
        and o.position <= v_head
        and e.recorded_at >= p_instant
    order by o.position
    limit 1;
    return coalesce(v_first - 1, v_head);
end
$$;

grant execute on function daybook.position_before to daybook_relay, daybook_operator;

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
