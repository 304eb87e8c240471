set local role daybook_owner;

-- What has committed and has no position yet. Operators may not read daybook.event, and this tells them no
-- more of it than how many and since when.
--
-- It looks at no more than p_limit events above the head and a tenth as many in the gaps, where each costs a look into
-- daybook.ledger_order, so that it costs the same with ten events and ten million. What lies beyond is told from ids: then
-- estimated is true, and events may count ids that were rolled back.
create function daybook.unsequenced(
    p_limit       integer,
    out events    bigint,
    out age_us    bigint,
    out estimated boolean
)
language plpgsql
stable
security definer
set search_path = pg_catalog, daybook, pg_temp
set jit = off
set enable_seqscan = off
as $$
declare
    v_head     bigint;
    v_highest  bigint;
    v_above    bigint;
    v_in_gaps  bigint;
    v_looked   bigint;
    v_oldest   timestamptz;
    v_oldest_2 timestamptz;
begin
    select s.head
    into v_head
    from daybook.sequencer as s;

    select count(*), min(a.recorded_at)
    into v_above, v_oldest
    from (
        select e.recorded_at
        from daybook.event as e
        where e.event_id > v_head
        order by e.event_id
        limit p_limit
    ) as a;

    -- The newest gaps first: what has committed lately is in those.
    select count(*), count(*) filter (where g.missing), min(g.recorded_at) filter (where g.missing)
    into v_looked, v_in_gaps, v_oldest_2
    from (
        select
            e.recorded_at,
            not exists (
                select
                from daybook.ledger_order as o
                where o.event_id = e.event_id
            ) as missing
        from (
            select r.ids
            from daybook.sequencer_gap as g
            cross join lateral unnest(g.ids) as r (ids)
            order by lower(r.ids) desc
        ) as r
        cross join lateral (
            select e.event_id, e.recorded_at
            from daybook.event as e
            where e.event_id >= lower(r.ids)
                and e.event_id < upper(r.ids)
            order by e.event_id desc
        ) as e
        limit p_limit / 10
    ) as g;

    estimated := v_above = p_limit or v_looked = p_limit / 10;
    if v_above = p_limit then
        select max(e.event_id)
        into v_highest
        from daybook.event as e;
        v_above := v_highest - v_head;
    end if;
    events := v_above + v_in_gaps;
    -- recorded_at is the ledger's clock, so its age is measured with that clock.
    age_us := (extract(epoch from daybook.clock() - least(v_oldest, v_oldest_2)) * 1000000)::bigint;
end
$$;

grant execute on function daybook.unsequenced to daybook_relay, daybook_operator;
