-- view_key by one statement, in the plainest way that makes the rows which the fold makes of accepted and rejected
-- requests. Of other kinds of events it does not know.
insert into aggregate.view_key (
    key_hash, scope, key_preview, job_id, mode, accepted, replaced, non_replaceable, conflicts, first_decision_at,
    last_decision_at, last_outcome, expires_at, first_position, last_position
)
select
    e.key_hash,
    max(e.scope),
    max(e.key_preview),
    (array_agg(e.job_id order by o.position desc))[1],
    max(e.body ->> 'mode') filter (where e.kind = 'enqueue.accepted'),
    count(*) filter (where e.kind = 'enqueue.accepted'),
    0,
    0,
    count(*) filter (where e.kind = 'enqueue.conflict_rejected'),
    min(e.recorded_at),
    max(e.recorded_at),
    substr((array_agg(e.kind order by o.position desc))[1], length('enqueue.') + 1),
    max((e.body ->> 'expires_at')::timestamptz) filter (where e.kind = 'enqueue.accepted'),
    min(o.position),
    max(o.position)
from daybook.ledger_order as o
join daybook.event as e
    on e.event_id = o.event_id
where e.key_hash is not null
group by e.key_hash
