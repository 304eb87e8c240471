-- Nulls where the fence was stale.
select f.state, f.run_at
from daybook.fail_job($1::uuid, $2::bigint, $3::text) as f
