-- The counts of the minutes in [$1, $2), newest minute first; nulls do not narrow.
select r.minute, r.scope, r.queue, r.type, r.outcome, r.decisions
from daybook.view_decision_rate as r
where r.minute >= coalesce($1::timestamptz, '-infinity')
    and r.minute < coalesce($2::timestamptz, 'infinity')
    and ($3::text is null or r.scope = $3::text)
    and ($4::text is null or r.queue = $4::text)
    and ($5::text is null or r.type = $5::text)
    and ($6::text is null or r.outcome = $6::text)
order by r.minute desc, r.scope, r.queue, r.type, r.outcome
limit $7::bigint
