-- The timeline of the hashes of a key.
select
    e.position,
    e.event_id,
    true as wanted,
    e.kind,
    e.job_id,
    e.scope,
    e.key_digest,
    e.key_preview,
    e.body::text,
    e.recorded_at,
    e.sequenced_at
from daybook.explain_events($1::bytea[]) as e
order by e.position
