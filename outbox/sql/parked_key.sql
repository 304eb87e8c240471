-- The key that an event which waits keeps its order with.
select p.order_key
from daybook.parked as p
where p.relay = $1::text
    and p.position = $2::bigint
    and p.redriven_at is null
    and p.discarded_at is null
