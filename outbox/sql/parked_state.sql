-- What became of a parked event, as far as a discard has to know.
select
    p.redriven_at is not null as redriven,
    p.discarded_at,
    p.discard_actor,
    p.discard_reason
from daybook.parked as p
where p.relay = $1::text
    and p.position = $2::bigint
