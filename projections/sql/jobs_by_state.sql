-- The jobs of state $5 that came before position $1, newest first; nulls do not narrow. Compared and ordered as pairs, so
-- that only the index on both will do: see keys_by_scope.sql. Where $6 is not null, waiting jobs are narrowed to those
-- whose time has come, or has not.
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
where (j.state, j.first_position) > ($5::text, 0::bigint)
    and (j.state, j.first_position) < ($5::text, $1::bigint)
    and ($3::text is null or j.type = $3::text)
    and ($4::text is null or j.queue = $4::text)
    and ($6::boolean is null or (j.next_run_at <= daybook.clock()) = $6::boolean)
order by j.state desc, j.first_position desc
limit $2::bigint
