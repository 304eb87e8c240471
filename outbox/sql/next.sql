-- The first position of a kind in the window ($1, $2], which holds at most 10000 positions. That number is written
-- out, so that the planner knows how little it will read, whatever the tables hold.
select w.position
from (
    select o.position, o.event_id
    from daybook.ledger_order as o
    where o.position > $1::bigint
        and o.position <= $2::bigint
    order by o.position
    limit 10000
) as w
join daybook.event as e
    on e.event_id = w.event_id
where e.kind = $3::text
order by w.position
limit 1
