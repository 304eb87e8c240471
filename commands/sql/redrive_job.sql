select r.outcome, r.job_id, r.fields
from daybook.redrive_job($1::uuid, $2::text, $3::text, $4::text) as r
