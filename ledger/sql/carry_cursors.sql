-- Takes cursors of other epochs along into the current one; with null all of them.
select c.name, c.from_epoch, c.from_position, c.position
from daybook.carry_cursors($1::text[]) as c
order by c.name
