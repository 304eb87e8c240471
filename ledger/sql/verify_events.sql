-- Of the events with ids ($1, $2]: how many there are, and those that do not have one position each. One below the head
-- that has none must be in a gap. All of it is of one snapshot, so this holds at any moment, whoever is sequencing.
with window_of_events as (
    select e.event_id
    from daybook.event as e
    where e.event_id > $1::bigint
        and e.event_id <= $2::bigint
),
placed as (
    select w.event_id, p.positions, p.first_position
    from window_of_events as w
    left join (
        select o.event_id, count(*) as positions, min(o.position) as first_position
        from daybook.ledger_order as o
        where o.event_id > $1::bigint
            and o.event_id <= $2::bigint
        group by o.event_id
    ) as p
        on p.event_id = w.event_id
)
select
    count(*) as events,
    coalesce(array_agg(p.event_id order by p.event_id) filter (
        where p.positions is null
            and p.event_id <= s.head
            and not exists (
                select
                from daybook.sequencer_gap as g
                where g.ids @> p.event_id
            )
    ), '{}') as without_position,
    coalesce(array_agg(p.event_id order by p.event_id) filter (where p.positions > 1), '{}') as repeated,
    coalesce(array_agg(p.first_position order by p.event_id) filter (where p.positions > 1), '{}') as repeated_at
from placed as p
cross join (
    select head
    from daybook.sequencer
) as s
group by s.head
