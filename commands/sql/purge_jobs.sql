-- One batch of a purge.
select p.outcome, p.purged, p.finished, p.fields
from daybook.purge_jobs($1::text, $2::text, $3::text, $4::text, $5::integer) as p
