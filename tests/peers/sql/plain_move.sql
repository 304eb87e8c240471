-- Compare and set.
update daybook.cursor as c
set position = $3::bigint,
    updated_at = clock_timestamp()
where c.name = $1::text
    and c.position = $2::bigint
