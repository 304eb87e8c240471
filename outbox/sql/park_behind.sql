-- Sets an event aside behind earlier ones of its key, as long as any waits: true where it waits there now. Of what is read
-- again after a crash the event itself may be the one that waits.
--
-- A redrive goes through the events of a key from the first to the last. So the lock on the last one decides: either
-- this event is behind it before the redrive gets there, or the redrive has passed, and it can be published.
with ahead as (
    select p.position
    from daybook.parked as p
    where p.relay = $1::text
        and p.order_key = $2::bytea
        and p.position <= $3::bigint
        and p.redriven_at is null
        and p.discarded_at is null
    order by p.position desc
    limit 1
    for share
),
added as (
    insert into daybook.parked (relay, position, event_id, attempts, order_key, reason)
    select $1::text, $3::bigint, $4::bigint, 0, $2::bytea, 'waits behind an earlier event of its key'
    from ahead
    on conflict on constraint parked_pkey do nothing
)
select exists (
    select
    from ahead
) as waits
