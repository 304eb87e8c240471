-- The cursor and the epoch the ledger is in. A new cursor begins in the current epoch.
with created as (
    insert into daybook.cursor (name, epoch, position)
    select $1::text, m.epoch, $2::bigint
    from daybook.meta as m
    where not exists (
        select
        from daybook.cursor as c
        where c.name = $1::text
    )
    on conflict on constraint cursor_pkey do nothing
    returning epoch, position
)
select m.epoch as ledger_epoch, c.epoch, c.position
from daybook.meta as m
cross join (
    select epoch, position
    from created
    union all
    select epoch, position
    from daybook.cursor
    where name = $1::text
) as c
