-- Takes the lease where nobody holds it, or keeps it where the caller does; no row where somebody else has it.
insert into daybook.relay_lease as l (name, holder, expires_at)
values ($1::text, $2::uuid, clock_timestamp() + $3::bigint * interval '1 millisecond')
on conflict on constraint relay_lease_pkey do update
set holder = excluded.holder,
    expires_at = excluded.expires_at,
    beat_at = clock_timestamp()
where l.holder = excluded.holder
    or l.expires_at <= clock_timestamp()
returning l.name
