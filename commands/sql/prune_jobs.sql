-- One batch, from where the last one ended.
select p.pruned, p.looked, p.last_finished, p.last_job_id
from daybook.prune_jobs($1::bigint, $2::timestamptz, $3::uuid, $4::integer) as p
