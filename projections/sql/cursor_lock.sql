-- Keeps the cursor where it is until the transaction ends.
select c.epoch, c.position
from daybook.cursor as c
where c.name = $1::text
for update
