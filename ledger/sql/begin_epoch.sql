-- Begins a new epoch where the database is now.
select b.epoch, b.position, b.swept
from daybook.begin_epoch($1::boolean) as b
