-- A page of failed jobs, from where the last one ended.
select f.job_ids, f.last_finished, f.last_job_id
from daybook.failed_jobs($1::text, $2::text, $3::timestamptz, $4::timestamptz, $5::uuid, $6::integer) as f
