-- Whether an event was discarded.
select exists (
    select
    from daybook.parked as p
    where p.relay = $1::text
        and p.position = $2::bigint
        and p.discarded_at is not null
) as discarded
