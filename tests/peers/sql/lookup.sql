-- The least that can find out what a key stands for.
select b.job_id, b.bound_at, b.expires_at
from daybook.binding as b
where b.key_hash = $1
