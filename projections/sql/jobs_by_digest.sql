-- The jobs of keys whose digest begins with $7 that came before position $1, newest first; nulls do not narrow. One key
-- has few, so they are sorted. 'g' comes right after the hex digits.
select
    j.job_id,
    case
        when j.state <> 'waiting' then j.state
        when j.next_run_at > daybook.clock() then 'scheduled'
        else 'ready'
    end as state,
    j.attempt,
    j.attempt_budget,
    j.queue,
    j.type,
    j.key_digest,
    j.key_preview,
    j.scope,
    j.source_job_id,
    j.accepted_at,
    j.started_at,
    j.finished_at,
    j.next_run_at,
    j.first_position,
    j.last_position
from daybook.view_job as j
where j.key_digest >= $7::text
    and j.key_digest < $7::text || 'g'
    and j.first_position < $1::bigint
    and ($3::text is null or j.type = $3::text)
    and ($4::text is null or j.queue = $4::text)
    and ($5::text is null or j.state = $5::text)
    and ($6::boolean is null or (j.next_run_at <= daybook.clock()) = $6::boolean)
order by j.first_position desc
limit $2::bigint
