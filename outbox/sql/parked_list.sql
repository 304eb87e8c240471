-- Parked events beyond ($1, $2) by relay and position: those that wait, and with $5 those that were redriven or discarded too.
select
    p.relay,
    p.position,
    p.event_id,
    f.kind,
    f.job_id,
    f.scope,
    f.key_digest,
    f.key_preview,
    p.reason,
    p.attempts,
    p.parked_at,
    p.redriven_at,
    p.discarded_at,
    p.discard_actor,
    p.discard_reason
from daybook.parked as p
join daybook.feed as f
    on f.position = p.position
where (p.relay, p.position) > ($1::text, $2::bigint)
    and ($3::text is null or p.relay = $3::text)
    and ($5::boolean or p.redriven_at is null and p.discarded_at is null)
order by p.relay, p.position
limit $4::integer
