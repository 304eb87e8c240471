-- Adds one batch to the counts. Earlier batches have earlier positions, so a row keeps the first one it got.
--
-- The arrays are unnested in the select list and not by one unnest of all of them: that would first put each array into a
-- table of its own, which takes as long as half the rest.
insert into view_decision_rate as r (minute, scope, queue, type, outcome, decisions, first_position)
select i.minute, i.scope, i.queue, i.type, i.outcome, i.decisions, i.first_position
from (
    select
        unnest($1::timestamptz[]) as minute,
        unnest($2::text[]) as scope,
        unnest($3::text[]) as queue,
        unnest($4::text[]) as type,
        unnest($5::text[]) as outcome,
        unnest($6::bigint[]) as decisions,
        unnest($7::bigint[]) as first_position
) as i
on conflict on constraint view_decision_rate_pkey do update
set decisions = r.decisions + excluded.decisions
