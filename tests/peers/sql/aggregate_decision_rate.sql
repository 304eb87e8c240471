-- view_decision_rate by one statement, in the plainest way: the rows that the fold makes of the same events.
insert into aggregate.view_decision_rate (minute, decisions, first_position, scope, queue, type, outcome)
select
    date_trunc('minute', e.recorded_at),
    count(*),
    min(o.position),
    coalesce(e.scope, ''),
    e.body ->> 'queue',
    e.body ->> 'type',
    substr(e.kind, length('enqueue.') + 1)
from daybook.ledger_order as o
join daybook.event as e
    on e.event_id = o.event_id
where e.kind like 'enqueue.%'
group by 1, 4, 5, 6, 7
