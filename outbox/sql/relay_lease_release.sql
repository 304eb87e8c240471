-- The holder is done: another one need not wait until the lease has run out.
update daybook.relay_lease as l
set expires_at = clock_timestamp(),
    beat_at = clock_timestamp()
where l.name = $1::text
    and l.holder = $2::uuid
