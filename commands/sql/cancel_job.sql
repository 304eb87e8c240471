select c.outcome, c.state
from daybook.cancel_job($1::uuid, $2::text, $3::text) as c
