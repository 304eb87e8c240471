-- The next events of a relay that wait, beyond position $2; where $3 is given, only those of that key.
select p.position, p.order_key
from daybook.parked as p
where p.relay = $1::text
    and p.position > $2::bigint
    and p.redriven_at is null
    and ($3::bytea is null or p.order_key = $3::bytea)
order by p.position
limit 100
