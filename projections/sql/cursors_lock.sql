-- The cursors whose names begin with $1, kept where they are until the transaction ends, with whether each is of the
-- current epoch. A transaction of somebody who was killed while it was being committed is waited for.
select
    c.name,
    c.epoch,
    c.position,
    c.epoch = (
        select m.epoch
        from daybook.meta as m
    ) as current
from daybook.cursor as c
where starts_with(c.name, $1::text)
order by c.name
for update of c
