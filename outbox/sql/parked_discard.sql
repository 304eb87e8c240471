-- An operator decides that an event which waits is never to be published.
update daybook.parked as p
set discarded_at = daybook.clock(),
    discard_actor = $3::text,
    discard_reason = $4::text
where p.relay = $1::text
    and p.position = $2::bigint
    and p.redriven_at is null
    and p.discarded_at is null
returning p.discarded_at
