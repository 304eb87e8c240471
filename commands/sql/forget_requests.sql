-- One batch of each.
select f.purges, f.redrives
from daybook.forget_requests($1::bigint, $2::integer) as f
