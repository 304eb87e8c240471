-- The events of the window of positions ($1, $2]: one index range, because positions are dense. The limit is as
-- large as the window; it is written out, in place of 1000, for the planner alone.
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
    o.sequenced_at,
    $2::bigint - $1::bigint as page_rows
from daybook.ledger_order as o
join daybook.event as e
    on e.event_id = o.event_id
where o.position > $1::bigint
    and o.position <= $2::bigint
order by o.position
limit 1000
