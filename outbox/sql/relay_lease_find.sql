-- Whether somebody else holds the lease. A look before the attempt to take it: that one would lock the row, whoever has it.
select exists (
    select
    from daybook.relay_lease as l
    where l.name = $1::text
        and l.holder <> $2::uuid
        and l.expires_at > clock_timestamp()
) as held
