-- The window of positions ($1, $1 + $2], one row each; of kinds other than $3, which null stands for all of, the position
-- alone.
select
    r.position,
    r.event_id,
    r.kind,
    r.job_id,
    r.scope,
    r.key_hash,
    r.key_preview,
    r.body,
    r.recorded_at,
    r.sequenced_at
from daybook.read_events($1::bigint, $2::bigint, $3::text[]) as r
