-- The window of positions ($1, $2] with the events that stand there, as they are stored. Of a position whose event is gone
-- the event's columns are null.
--
-- The limit is as large as the window; it tells the planner how little that is.
select
    w.position,
    w.event_id,
    w.leaf_hash,
    e.kind,
    e.job_id,
    e.scope,
    e.key_hash,
    e.key_preview,
    e.body,
    e.recorded_at
from (
    select o.position, o.event_id, o.leaf_hash
    from daybook.ledger_order as o
    where o.position > $1::bigint
        and o.position <= $2::bigint
    order by o.position
    limit 5000
) as w
left join daybook.event as e
    on e.event_id = w.event_id
order by w.position
