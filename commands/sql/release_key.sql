select r.outcome, r.job_id
from daybook.release_key($1::text, $2::bytea, $3::text, $4::text) as r
