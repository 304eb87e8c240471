-- One job.
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
where j.job_id = $1::uuid
