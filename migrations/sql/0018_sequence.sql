set local role daybook_owner;

-- How far sequencing has come. One row, written once a round.
create table daybook.sequencer (
    singleton boolean     not null default true,
    -- The last position given, and the highest event id that was ever seen.
    position  bigint      not null default 0,
    head      bigint      not null default 0,
    -- What was visible in the last complete round.
    seen      pg_snapshot,
    -- Events that the gaps had missed and a sweep found. Stays 0 as long as the reasoning of daybook.sequence holds.
    swept     bigint      not null default 0,
    beat_at   timestamptz not null default clock_timestamp(),
    constraint sequencer_pkey primary key (singleton),
    constraint sequencer_is_one_row check (singleton)
)
with (fillfactor = 10);

insert into daybook.sequencer default values;

-- Ids below the head that were not visible when the head passed them: whose transaction may still commit, or
-- was rolled back. One row per round that found any.
create table daybook.sequencer_gap (
    -- An xid given out after the gap was found: every transaction that can still fill it is older.
    stamp xid8           not null,
    ids   int8multirange not null
)
with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

comment on table daybook.sequencer is 'How far sequencing has come (one row).';
comment on table daybook.sequencer_gap is 'Event ids below the head that may still appear, by the xid until which they may.';

-- What a leaf of the ledger hashes: the stored bytes of an event, with a NUL after each text, which no text
-- can hold, so that two different events never hash the same bytes. The leading 0 tells a leaf from a node (RFC 6962).
-- ledger.LeafHash computes the same from what a reader has.
--
-- The body is bound when it is made, and so means the same under any search_path and any way of reading literals.
-- Stable, as convert_to is: so PostgreSQL inlines it, which makes it four times as fast.
create function daybook.leaf_hash(e daybook.event)
returns bytea
language sql
stable
return sha256(
    '\x00'::bytea
    || int8send((e).event_id)
    || timestamptz_send((e).recorded_at)
    || convert_to(coalesce((e).job_id::text, ''), 'UTF8') || '\x00'::bytea
    || convert_to(coalesce(encode((e).key_hash, 'hex'), ''), 'UTF8') || '\x00'::bytea
    || convert_to((e).kind, 'UTF8') || '\x00'::bytea
    || convert_to(coalesce((e).scope, ''), 'UTF8') || '\x00'::bytea
    || convert_to(coalesce((e).key_preview, ''), 'UTF8') || '\x00'::bytea
    || convert_to((e).body::text, 'UTF8')
);
grant execute on function daybook.leaf_hash to daybook_relay;

-- Keeps the memory of gaps bounded while one long transaction keeps them all from being forgotten: beyond
-- p_rows rows the older ones become one, and beyond p_ranges ranges neighbours are joined. A joined range may
-- cover ids that are sequenced already; whoever looks into a gap passes over those.
create function daybook.merge_gaps(p_rows integer, p_ranges integer)
returns void
language plpgsql
volatile
as $$
begin
    if (select count(*) from daybook.sequencer_gap) <= p_rows then
        return;
    end if;
    with newest as (
        select g.stamp
        from daybook.sequencer_gap as g
        order by g.stamp desc
        limit p_rows / 2
    ),
    old as (
        delete from daybook.sequencer_gap as g
        where g.stamp < (select min(n.stamp) from newest as n)
        returning g.stamp, g.ids
    ),
    merged as (
        select max(o.stamp) as stamp, range_agg(o.ids) as ids
        from old as o
    ),
    tile as (
        select m.stamp, r.ids, ntile(p_ranges) over (order by r.ids) as tile
        from merged as m
        cross join lateral unnest(m.ids) as r (ids)
    ),
    joined as (
        select max(t.stamp) as stamp, int8range(min(lower(t.ids)), max(upper(t.ids))) as ids
        from tile as t
        group by t.tile
    )
    insert into daybook.sequencer_gap (stamp, ids)
    select max(j.stamp), range_agg(j.ids)
    from joined as j
    having count(*) > 0;
end
$$;

-- Gives positions to events that have committed, at most p_limit of them, and says how many, up to which
-- position, and whether there are more. Any reader may call it before it reads, in a transaction of its own at
-- READ COMMITTED. While another call is at it, this one returns at once with sequenced null.
--
-- Why it misses nothing. An event id is drawn from an identity with cache 1, by a transaction that has its xid
-- already. So when id n is visible in a snapshot, whoever drew a smaller id had an xid before that snapshot was
-- taken, and the xid that this function takes after the snapshot is larger than all of those. An id below the head
-- that is not visible is kept as a gap under that xid, its stamp. Once the xmin of a later snapshot has reached
-- the stamp, every transaction that could fill the gap has ended; what that same snapshot does not show, never comes.
--
-- The stamp cannot be the snapshot's own xmax, which is the last *completed* xid plus one: a transaction that took its
-- xid early and draws its id late can be visible while an older id is held by a younger xid above xmax.
--
-- Why the order is right. The id of an event is drawn under the lock of its key's binding. So of two events of
-- one key the earlier has committed before the id of the later is drawn, and no snapshot shows the later alone.
-- Inside a round the order is that of the ids.
create function daybook.sequence(
    p_limit           integer default 5000,
    out sequenced     integer,
    out last_position bigint,
    out more          boolean
)
language plpgsql
volatile
security definer
set search_path = pg_catalog, daybook, pg_temp
set jit = off
-- A session keeps its plans: none may ever read a whole table or index for the sake of what is new.
set enable_seqscan = off
set enable_bitmapscan = off
set enable_hashjoin = off
set enable_mergejoin = off
set enable_memoize = off
as $$
declare
    -- The advisory lock of this function: the first eight bytes of SHA-256('daybook.sequence').
    c_lock        constant bigint := ('x' || left(encode(sha256('daybook.sequence'), 'hex'), 16))::bit(64)::bigint;
    v_state       daybook.sequencer;
    v_snapshot    pg_snapshot;
    v_gaps        bigint[];
    v_above       bigint[];
    v_ids         bigint[];
    v_looked      boolean;
    v_forgettable boolean;
    v_stamp       xid8;
    v_head        bigint;
begin
    if current_setting('transaction_isolation') <> 'read committed' or pg_current_xact_id_if_assigned() is not null then
        raise exception 'daybook.sequence must run in a transaction of its own at READ COMMITTED'
            using errcode = 'invalid_transaction_state',
                  hint = 'Call it before anything is written in the transaction.';
    end if;
    if coalesce(p_limit, 0) < 1 then
        raise exception 'daybook.sequence takes at least one event a round, not %', p_limit
            using errcode = 'invalid_parameter_value';
    end if;

    -- An advisory lock and not a row lock, because locking a row takes an xid, and the stamp must be younger than
    -- the snapshot. Also because an idle poll then leaves no trace.
    if not pg_try_advisory_xact_lock(c_lock) then
        return;
    end if;

    select s.*
    into v_state
    from daybook.sequencer as s;

    -- One statement, so one snapshot, younger than the lock: what it shows, what it does not, and its bounds.
    --
    -- A gap is looked into only where a transaction older than its stamp may have ended since the last round, so that
    -- ids that wait for one long transaction cost nothing while it lasts.
    with snapshot as materialized (
        select pg_current_snapshot() as snapshot
    ),
    ended as materialized (
        select
            case
                when pg_snapshot_xmax(v_state.seen) <= pg_snapshot_xmax(s.snapshot) then (
                    select min(x.xid)
                    from (
                        select x.xid
                        from pg_snapshot_xip(v_state.seen) as x (xid)
                        where pg_visible_in_snapshot(x.xid, s.snapshot)
                        union all
                        select pg_snapshot_xmax(v_state.seen)
                    ) as x
                )
                -- Restored from a dump into a cluster with smaller xids: nothing is known, so look into every gap.
                else '0'::xid8
            end as xid
        from snapshot as s
    )
    select
        s.snapshot,
        exists (
            select
            from daybook.sequencer_gap as g
            where g.stamp > ended.xid
        ),
        exists (
            select
            from daybook.sequencer_gap as g
            where g.stamp <= pg_snapshot_xmin(s.snapshot)
        ),
        array(
            -- Gaps may overlap: see daybook.begin_epoch.
            select distinct c.event_id
            from daybook.sequencer_gap as g
            cross join lateral unnest(g.ids) as r (ids)
            -- OFFSET 0 keeps the planner from beginning with the whole of the ledger.
            cross join lateral (
                select e.event_id
                from daybook.event as e
                where e.event_id >= lower(r.ids)
                    and e.event_id < upper(r.ids)
                    and not exists (
                        select
                        from daybook.ledger_order as o
                        where o.event_id = e.event_id
                    )
                order by e.event_id
                limit p_limit
                offset 0
            ) as c
            where g.stamp > ended.xid
            order by c.event_id
            limit p_limit
        ),
        array(
            select e.event_id
            from daybook.event as e
            where e.event_id > v_state.head
            order by e.event_id
            limit p_limit
        )
    into v_snapshot, v_looked, v_forgettable, v_gaps, v_above
    from snapshot as s
    cross join ended;

    -- Gap ids are smaller than those above the head; a cut by the limit leaves the larger ones for the next round.
    v_ids := (v_gaps || v_above)[1:p_limit];
    sequenced := coalesce(cardinality(v_ids), 0);
    last_position := v_state.position + sequenced;
    more := cardinality(v_gaps) + cardinality(v_above) > sequenced
        or cardinality(v_gaps) = p_limit
        or cardinality(v_above) = p_limit;
    if sequenced = 0 and not v_looked and not v_forgettable then
        return;
    end if;

    -- After the snapshot, and before anything is written.
    v_stamp := pg_current_xact_id();

    if sequenced > 0 then
        insert into daybook.ledger_order (position, event_id, sequenced_at, leaf_hash)
        select v_state.position + i.ordinal, e.event_id, clock_timestamp(), daybook.leaf_hash(e)
        from unnest(v_ids) with ordinality as i (event_id, ordinal)
        join daybook.event as e
            on e.event_id = i.event_id
        order by i.ordinal;
    end if;

    v_head := greatest(v_state.head, v_ids[sequenced]);
    if v_head > v_state.head then
        -- The ids between the old head and the new one that were not visible.
        insert into daybook.sequencer_gap (stamp, ids)
        select v_stamp, h.ids
        from (
            select int8multirange(int8range(v_state.head + 1, v_head + 1))
                - range_agg(int8range(i.event_id, i.event_id + 1)) as ids
            from unnest(v_ids) as i (event_id)
            where i.event_id > v_state.head
        ) as h
        where not isempty(h.ids);
    end if;

    if cardinality(v_gaps) = p_limit then
        -- Some of what the gaps show may still be to be taken: forget nothing but what was taken, and look again in
        -- the next round.
        v_snapshot := v_state.seen;
        update daybook.sequencer_gap as g
        set ids = g.ids - t.ids
        from (
            select range_agg(int8range(i.event_id, i.event_id + 1)) as ids
            from unnest(v_gaps) as i (event_id)
        ) as t
        where g.ids && t.ids;
    else
        -- A stamp above this round's was given in another cluster, before a dump, and nothing can fill its gap any more.
        delete from daybook.sequencer_gap as g
        where g.stamp <= pg_snapshot_xmin(v_snapshot)
            or g.stamp > v_stamp;
        perform daybook.merge_gaps(64, 256);
    end if;

    update daybook.sequencer as s
    set position = last_position,
        head = v_head,
        seen = v_snapshot,
        beat_at = clock_timestamp();

    if sequenced > 0 then
        -- One writer, so the lock that a notification takes at commit holds nobody up.
        perform pg_notify('daybook_sequenced', last_position::text);
    end if;
end
$$;

grant execute on function daybook.sequence to daybook_relay;

-- Readers ask every few milliseconds which event id was drawn last, to know when there may be something to sequence.
-- Whoever drew it may not have committed yet, and may never. This is the right to see it, and not to draw one. A function
-- around it would cost more than twice as much.
grant select on sequence daybook.event_event_id_seq to daybook_relay;

-- Looks for events that have no position although the gaps hold no place for them, gives them one, and counts
-- them in sequencer.swept. There should never be any. It reads the whole of both indexes: run it seldom.
create function daybook.sweep()
returns bigint
language plpgsql
volatile
security definer
set search_path = pg_catalog, daybook, pg_temp
set jit = off
as $$
declare
    c_lock  constant bigint := ('x' || left(encode(sha256('daybook.sequence'), 'hex'), 16))::bit(64)::bigint;
    v_state daybook.sequencer;
    v_swept bigint;
begin
    perform pg_advisory_xact_lock(c_lock);
    select s.*
    into v_state
    from daybook.sequencer as s;

    with missed as (
        select e.event_id
        from daybook.event as e
        where e.event_id <= v_state.head
            and not exists (
                select
                from daybook.ledger_order as o
                where o.event_id = e.event_id
            )
            and not exists (
                select
                from daybook.sequencer_gap as g
                where g.ids @> e.event_id
            )
    )
    insert into daybook.ledger_order (position, event_id, sequenced_at, leaf_hash)
    select v_state.position + row_number() over (order by e.event_id), e.event_id, clock_timestamp(), daybook.leaf_hash(e)
    from missed as m
    join daybook.event as e
        on e.event_id = m.event_id;
    get diagnostics v_swept = row_count;

    if v_swept > 0 then
        update daybook.sequencer as s
        set position = s.position + v_swept,
            swept = s.swept + v_swept;
    end if;
    return v_swept;
end
$$;

grant execute on function daybook.sweep() to daybook_relay;
