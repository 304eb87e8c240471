-- Compare and set, while a page is being handled: moves the cursor only from where the page's writes may have put it, in the
-- epoch that the page was read in, on the server that it was read from. Answers whether it is there, and whether it was moved.
--
-- It waits for nobody: where it is there and was not moved, somebody has locked it.
with here as materialized (
    select c.name
    from daybook.cursor as c
    join daybook.meta as m
        on m.epoch = c.epoch
    where c.name = $1::text
        and c.epoch = $2::bigint
        and c.position = any ($3::bigint[])
        and pg_postmaster_start_time() = $5::timestamptz
        and exists (
            select
            from pg_catalog.pg_database as d
            where d.datname = current_database()
                and d.oid = $6::bigint
        )
),
free as materialized (
    select c.name
    from daybook.cursor as c
    where c.name = $1::text
        and c.epoch = $2::bigint
        and c.position = any ($3::bigint[])
        and exists (
            select
            from here
        )
    for no key update skip locked
),
moved as (
    update daybook.cursor as c
    set position = $4::bigint,
        updated_at = clock_timestamp()
    from free as f
    where c.name = f.name
    returning c.name
)
select
    exists (
        select
        from here
    ) as here,
    exists (
        select
        from moved
    ) as moved
