-- The window of positions ($1, $1 + $2], one row each; of kinds that were not asked for, the position alone.
-- Positions are dense, so the window is one index range whatever it holds, and its last row says how far
-- the reader has come.
select
    o.position,
    e.event_id,
    e.kind,
    e.job_id,
    e.scope,
    e.key_hash,
    e.key_preview,
    e.body,
    e.recorded_at,
    o.sequenced_at
from daybook.ledger_order as o
left join daybook.event as e
    on e.event_id = o.event_id
    and ($3::text[] is null or e.kind = any ($3::text[]))
where o.position > $1::bigint
    and o.position <= $1::bigint + $2::bigint
order by o.position
