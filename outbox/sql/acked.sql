-- Compare and set, while a page is being handled: moves the cursor only from where the page's last write has put it, in the
-- epoch that the page was read in, on the server that it was read from.
--
-- It waits for nobody: where somebody has locked the cursor, it does nothing. Nor does it wait for the disk: what it
-- would lose in a crash of the server is delivered again, and the write at the end of the page waits.
with free as materialized (
    select c.name
    from daybook.cursor as c
    where c.name = $1::text
        and c.epoch = $2::bigint
        and c.position = $3::bigint
    for no key update skip locked
)
update daybook.cursor as c
set position = $4::bigint,
    updated_at = clock_timestamp()
from free as f
cross join daybook.meta as m
where c.name = f.name
    and m.epoch = c.epoch
    and pg_postmaster_start_time() = $5::timestamptz
    and exists (
        select
        from pg_catalog.pg_database as d
        where d.datname = current_database()
            and d.oid = $6::bigint
    )
    and set_config('synchronous_commit', 'off', true) is not null
