-- The first event that still waits of the key of the event at position $2, and how many do.
select
    coalesce(min(w.position), 0) as first,
    count(w.position) as waiting
from daybook.parked as p
left join daybook.parked as w
    on w.relay = p.relay
    and w.order_key = p.order_key
    and w.redriven_at is null
    and w.discarded_at is null
where p.relay = $1::text
    and p.position = $2::bigint
