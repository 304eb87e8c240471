-- A cursor, where there is one of the current epoch.
select c.epoch, c.position
from daybook.cursor as c
join daybook.meta as m
    on m.epoch = c.epoch
where c.name = $1::text
