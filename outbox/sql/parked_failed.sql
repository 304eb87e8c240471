-- A redrive did not get it published either.
update daybook.parked as p
set attempts = p.attempts + 1,
    reason = $3::text
where p.relay = $1::text
    and p.position = $2::bigint
    and p.redriven_at is null
    and p.discarded_at is null
