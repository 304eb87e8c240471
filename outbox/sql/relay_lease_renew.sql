-- The holder goes on. An expired lease that nobody has taken is still hers.
update daybook.relay_lease as l
set expires_at = clock_timestamp() + $3::bigint * interval '1 millisecond',
    beat_at = clock_timestamp()
where l.name = $1::text
    and l.holder = $2::uuid
returning l.name
