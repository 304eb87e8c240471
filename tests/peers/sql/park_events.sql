-- Parks $3 events after position $2 on a relay, each $4th one.
insert into daybook.parked (relay, position, event_id, attempts, order_key, reason)
select $1::text, o.position, e.event_id, 5, e.key_hash, 'the broker has refused it'
from generate_series(1, $3::bigint) as n
join daybook.ledger_order as o
    on o.position = $2::bigint + n * $4::bigint
join daybook.event as e
    on e.event_id = o.event_id
