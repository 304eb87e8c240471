select r.outcome, r.state
from daybook.run_job_now($1::uuid, $2::text, $3::text) as r
