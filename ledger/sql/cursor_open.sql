-- The cursor, the epoch that the ledger is in, and whether the ledger is where that epoch began. A new cursor begins in
-- the current epoch; where the ledger was moved, none is made.
with life as materialized (
    select
        l.epoch,
        l.same,
        l.recorded_system_identifier,
        l.recorded_timeline,
        l.recorded_database_oid,
        l.system_identifier,
        l.timeline,
        l.database_oid
    from daybook.check_life() as l
),
created as (
    insert into daybook.cursor (name, epoch, position)
    select $1::text, l.epoch, $2::bigint
    from life as l
    where l.same
        and l.epoch is not null
        and not exists (
            select
            from daybook.cursor as c
            where c.name = $1::text
        )
    on conflict on constraint cursor_pkey do nothing
    returning epoch, position
)
select
    l.epoch as ledger_epoch,
    l.same,
    l.recorded_system_identifier,
    l.recorded_timeline,
    l.recorded_database_oid,
    l.system_identifier,
    l.timeline,
    l.database_oid,
    c.epoch,
    c.position
from life as l
left join (
    select epoch, position
    from created
    union all
    select epoch, position
    from daybook.cursor
    where name = $1::text
) as c
    on true
