-- Sets an event aside, for whoever holds the relay's lease: one who lost it, and does not know yet, must not park what
-- her successor has published. An event that was redriven and is read again after a crash waits once more; one that was
-- discarded stays so.
with mine as (
    select
    from daybook.relay_lease as l
    where l.name = $1::text
        and l.holder = $2::uuid
    for share
)
insert into daybook.parked as p (relay, position, event_id, attempts, order_key, reason)
select $3::text, $4::bigint, $5::bigint, $6::integer, $7::bytea, $8::text
from mine
on conflict on constraint parked_pkey do update
set attempts = excluded.attempts,
    reason = excluded.reason,
    parked_at = clock_timestamp(),
    redriven_at = null
where p.discarded_at is null
returning position
