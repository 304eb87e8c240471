-- Whether there is a cursor of that name that has come that far.
select exists (
    select
    from daybook.cursor as c
    where c.name = $1::text
        and c.position >= $2::bigint
) as reached
