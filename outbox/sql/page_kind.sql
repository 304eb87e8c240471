-- The events of one kind in the window of positions ($1, $2]. The limit is as large as the window; it is written out,
-- in place of 1000, for the planner alone. Each row says how many there are: whoever gets fewer has not seen them all.
select
    w.position,
    e.event_id,
    e.kind,
    e.job_id,
    e.scope,
    e.key_hash,
    e.key_preview,
    e.body,
    e.recorded_at,
    w.sequenced_at,
    count(*) over () as page_rows
from (
    select o.position, o.event_id, o.sequenced_at
    from daybook.ledger_order as o
    where o.position > $1::bigint
        and o.position <= $2::bigint
    order by o.position
    limit 1000
) as w
join daybook.event as e
    on e.event_id = w.event_id
where e.kind = $3::text
order by w.position
