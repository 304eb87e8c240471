-- Adds one batch to the counts. Earlier batches have earlier positions, so a row keeps the first one it got.
insert into view_decision_rate as r (minute, scope, queue, type, outcome, decisions, first_position)
select i.minute, i.scope, i.queue, i.type, i.outcome, i.decisions, i.first_position
from unnest($1::timestamptz[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[])
    as i (minute, scope, queue, type, outcome, decisions, first_position)
on conflict on constraint view_decision_rate_pkey do update
set decisions = r.decisions + excluded.decisions
