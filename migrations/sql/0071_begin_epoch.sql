set local role daybook_owner;

-- What tells whether the ledger is where its epoch began, and whether its parts belong together. One row, a few index
-- probes, nothing is changed. Without a row in daybook.meta the epoch is null.
create function daybook.diagnose(
    out epoch                      bigint,
    out ledger_id                  uuid,
    out follow_timelines           boolean,
    out recorded_system_identifier bigint,
    out recorded_timeline          bigint,
    out recorded_database_oid      bigint,
    out system_identifier          bigint,
    out timeline                   bigint,
    out database_oid               bigint,
    out sequencer_position         bigint,
    out sequencer_head             bigint,
    out swept                      bigint,
    out last_position              bigint,
    out last_event_id              bigint,
    out last_ordered_event_id      bigint,
    out next_event_id              bigint,
    out foreign_xids               boolean
)
language plpgsql
stable
security definer
set search_path = pg_catalog, daybook, pg_temp
set jit = off
as $$
begin
    select
        m.epoch, m.ledger_id, m.follow_timelines, m.system_identifier, m.timeline, m.database_oid
    into
        diagnose.epoch, diagnose.ledger_id, diagnose.follow_timelines, recorded_system_identifier, recorded_timeline,
        recorded_database_oid
    from daybook.meta as m;

    select f.system_identifier, f.timeline, f.database_oid
    into diagnose.system_identifier, diagnose.timeline, diagnose.database_oid
    from daybook.found_life() as f;

    select
        s.position,
        s.head,
        s.swept,
        -- A snapshot that was taken here can't end beyond one taken now.
        coalesce(pg_snapshot_xmax(s.seen) > pg_snapshot_xmax(pg_current_snapshot()), false)
    into sequencer_position, sequencer_head, diagnose.swept, foreign_xids
    from daybook.sequencer as s;

    -- What both of the larger tables show in one snapshot, that of the caller's statement.
    select max(o.position), max(o.event_id)
    into last_position, last_ordered_event_id
    from daybook.ledger_order as o;
    select max(e.event_id)
    into last_event_id
    from daybook.event as e;
    last_position := coalesce(last_position, 0);
    last_event_id := coalesce(last_event_id, 0);
    last_ordered_event_id := coalesce(last_ordered_event_id, 0);

    -- Read last: it moves on whatever the snapshot is, so it is never behind what the snapshot shows by itself.
    select i.last_value + i.is_called::integer
    into next_event_id
    from daybook.event_event_id_seq as i;
end
$$;

-- Makes sure that no id is drawn a second time: not one that an event has, and not one below the head, where the
-- sequencer does not look any more. True where it had to be done. A transaction of its own, before daybook.begin_epoch: so
-- whoever drew one of those ids before has an xid below that of begin_epoch.
create function daybook.raise_event_id()
returns boolean
language plpgsql
volatile
security definer
set search_path = pg_catalog, daybook, pg_temp
set jit = off
as $$
declare
    -- Whoever draws ids at the same time must not be set back.
    c_margin  constant bigint := 10000;
    v_highest          bigint;
    v_raised           boolean := false;
begin
    select greatest(
        (
            select max(e.event_id)
            from daybook.event as e
        ),
        (
            select max(o.event_id)
            from daybook.ledger_order as o
        ),
        (
            select s.head
            from daybook.sequencer as s
        )
    )
    into v_highest;
    if (
            select i.last_value + i.is_called::integer
            from daybook.event_event_id_seq as i
        ) <= v_highest
    then
        perform setval('daybook.event_event_id_seq', v_highest + c_margin);
        v_raised := true;
    end if;
    return v_raised;
end
$$;

-- Begins a new epoch where the database is now. Positions stay as they are. Readers of the epoch before stop, each with an
-- error that names daybook doctor; daybook.carry_cursors takes them along.
--
-- p_look_everywhere is what daybook.raise_event_id answered: then ids below the head may have been drawn again, and may be
-- about to commit.
create function daybook.begin_epoch(
    p_look_everywhere boolean,
    out epoch         bigint,
    out "position"    bigint,
    out swept         bigint
)
language plpgsql
volatile
security definer
set search_path = pg_catalog, daybook, pg_temp
set jit = off
as $$
#variable_conflict use_column
declare
    -- The advisory lock of daybook.sequence.
    c_lock constant bigint := ('x' || left(encode(sha256('daybook.sequence'), 'hex'), 16))::bit(64)::bigint;
    v_state         daybook.sequencer;
    v_position      bigint;
    v_ordered       bigint;
begin
    if current_setting('transaction_isolation') <> 'read committed' or pg_current_xact_id_if_assigned() is not null then
        raise exception 'daybook.begin_epoch must run in a transaction of its own at READ COMMITTED'
            using errcode = 'invalid_transaction_state',
                  hint = 'Call it before anything is written in the transaction.';
    end if;
    perform pg_advisory_xact_lock(c_lock);
    select s.*
    into v_state
    from daybook.sequencer as s;
    if not found then
        raise exception 'daybook.sequencer has no row: the schema was restored without its data'
            using errcode = 'data_exception',
                  hint = 'Restore the dump as a whole, schema and data.';
    end if;
    select coalesce(max(o.position), 0), coalesce(max(o.event_id), 0)
    into v_position, v_ordered
    from daybook.ledger_order as o;

    -- Stamps and the snapshot may be of another cluster, whose xids say nothing here. Every gap gets a stamp of this one
    -- and is looked into until that has passed. The xid is drawn under the lock, so it is younger than any that
    -- could still fill a gap: those drew their ids before the gap was found.
    update daybook.sequencer_gap as g
    set stamp = pg_current_xact_id();
    insert into daybook.sequencer_gap (stamp, ids)
    select pg_current_xact_id(), int8multirange(int8range(n.low, n.high, '[]'))
    from (
        values
            (v_state.head + 1, v_ordered),
            (1, case when p_look_everywhere then greatest(v_state.head, v_ordered) else 0 end)
    ) as n (low, high)
    where n.low <= n.high;
    update daybook.sequencer as s
    set position = v_position,
        head = greatest(v_state.head, v_ordered),
        seen = null;

    -- Whatever no gap has a place for. What it finds belongs to the epoch before, and the new one begins to count anew.
    swept := daybook.sweep();
    update daybook.sequencer as s
    set swept = 0,
        beat_at = clock_timestamp()
    returning s.position into "position";

    update daybook.meta as m
    set epoch = m.epoch + 1,
        system_identifier = f.system_identifier,
        timeline = f.timeline,
        database_oid = f.database_oid
    from daybook.found_life() as f
    returning m.epoch into epoch;
    if not found then
        raise exception 'daybook.meta has no row: the schema was restored without its data'
            using errcode = 'data_exception',
                  hint = 'Restore the dump as a whole, schema and data.';
    end if;
    insert into daybook.epoch (epoch, position, swept, system_identifier, timeline, database_oid)
    select m.epoch, begin_epoch.position, v_state.swept + begin_epoch.swept, m.system_identifier, m.timeline, m.database_oid
    from daybook.meta as m;
end
$$;

-- Takes cursors of other epochs along into the current one: those named, or with null all. A cursor beyond the last
-- position goes back to it: what it has read beyond does not exist in this epoch, and the events that will stand there are
-- others.
create function daybook.carry_cursors(p_names text[])
returns table (
    name          text,
    from_epoch    bigint,
    from_position bigint,
    "position"    bigint
)
language sql
volatile
security definer
set search_path = pg_catalog, daybook, pg_temp
as $$
    with old as materialized (
        select c.name, c.epoch, c.position
        from daybook.cursor as c
        cross join daybook.meta as m
        where c.epoch <> m.epoch
            and (p_names is null or c.name = any (p_names))
        order by c.name
        for no key update of c
    )
    update daybook.cursor as c
    set epoch = m.epoch,
        position = least(o.position, s.position),
        updated_at = clock_timestamp()
    from old as o
    cross join daybook.meta as m
    cross join daybook.sequencer as s
    where c.name = o.name
    returning c.name, o.epoch, o.position, c.position
$$;

grant execute on function daybook.diagnose to daybook_relay, daybook_operator;
grant execute on function daybook.raise_event_id, daybook.begin_epoch, daybook.carry_cursors to daybook_operator;

-- Whether readers go on by themselves after a promotion; see daybook.meta.
create function daybook.follow_timelines(p_follow boolean)
returns void
language sql
volatile
security definer
set search_path = pg_catalog, daybook, pg_temp
as $$
    update daybook.meta as m
    set follow_timelines = p_follow
    where m.follow_timelines <> p_follow
$$;

grant execute on function daybook.follow_timelines to daybook_operator;
