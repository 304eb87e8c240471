-- The window of positions ($1, $1 + $2], one row each; of kinds that were not asked for, the position alone. Positions are
-- dense, so the window is one index range whatever it holds.
select
    f.position,
    f.event_id,
    f.kind = any ($3::text[]) or $3::text[] is null as wanted,
    f.kind,
    f.job_id,
    f.scope,
    f.key_digest,
    f.key_preview,
    f.body::text,
    f.recorded_at,
    f.sequenced_at
from daybook.feed as f
where f.position > $1::bigint
    and f.position <= $1::bigint + $2::bigint
order by f.position
