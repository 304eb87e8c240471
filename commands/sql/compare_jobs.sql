-- The jobs of one slice against a fold of their events.
select
    c.compared,
    c.missing,
    c.extra,
    c.different,
    c.first_position,
    c.difference,
    c.key_digest,
    c.job_id,
    c.columns,
    c.event_id,
    c.position
from daybook.compare_jobs($1::integer, $2::integer, $3::integer) as c
