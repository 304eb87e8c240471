-- The key of the first event that waits on a relay, but for those keys that are to be passed over.
select p.order_key
from daybook.parked as p
where p.relay = $1::text
    and p.redriven_at is null
    and p.discarded_at is null
    and p.order_key <> all ($2::bytea[])
order by p.position
limit 1
