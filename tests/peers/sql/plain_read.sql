-- A page of events by position. The limit comes with the page.
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
join daybook.event as e
    on e.event_id = o.event_id
where o.position > $1::bigint
    and o.position <= $2::bigint
order by o.position
