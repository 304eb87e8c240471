-- Sets an event aside behind others of its key, as long as there are any: true where it waits there now.
--
-- A redrive goes through the events of a key from the first to the last. So the lock on the last one decides: either
-- this event is behind it before the redrive gets there, or the redrive has passed, and it can be published.
with ahead as (
    select p.position
    from daybook.parked as p
    where p.relay = $1::text
        and p.order_key = $2::bytea
        and p.redriven_at is null
    order by p.position desc
    limit 1
    for share
),
added as (
    insert into daybook.parked (relay, position, event_id, attempts, order_key, reason)
    select $1::text, $3::bigint, $4::bigint, 0, $2::bytea, 'waits behind an earlier event of its key'
    from ahead
    -- It was there already when this page was begun, before a crash.
    on conflict on constraint parked_pkey do nothing
)
select exists (
    select
    from ahead
) as waits
