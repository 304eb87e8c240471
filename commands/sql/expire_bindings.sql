-- One batch, from where the last one ended.
select e.expired, e.last_expires
from daybook.expire_bindings($1::timestamptz, $2::integer) as e
