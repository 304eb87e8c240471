-- The next events of a key that wait on a relay, beyond position $3.
select p.position
from daybook.parked as p
where p.relay = $1::text
    and p.order_key = $2::bytea
    and p.position > $3::bigint
    and p.redriven_at is null
    and p.discarded_at is null
order by p.position
limit 100
