-- Adds one batch, already one row per job. Each event tells the whole of where a job is, so what the batch says last
-- replaces what the table has; null in a column that an event seldom tells means: as it was.
--
-- The arrays are unnested in the select list and not by one unnest of all of them: that would first put each array into a
-- table of its own, which takes as long as half the rest.
insert into view_job as j (
    job_id, source_job_id, accepted_at, started_at, finished_at, next_run_at, first_position, last_position, attempt,
    attempt_budget, state, queue, type, key_digest, scope, key_preview
)
select
    i.job_id, i.source_job_id, i.accepted_at, i.started_at, i.finished_at, i.next_run_at, i.first_position,
    i.last_position, i.attempt, i.attempt_budget, i.state, i.queue, i.type, i.key_digest, i.scope, i.key_preview
from (
    select
        unnest($1::uuid[]) as job_id,
        unnest($2::uuid[]) as source_job_id,
        unnest($3::timestamptz[]) as accepted_at,
        unnest($4::timestamptz[]) as started_at,
        unnest($5::timestamptz[]) as finished_at,
        unnest($6::timestamptz[]) as next_run_at,
        unnest($7::bigint[]) as first_position,
        unnest($8::bigint[]) as last_position,
        unnest($9::smallint[]) as attempt,
        unnest($10::smallint[]) as attempt_budget,
        unnest($11::text[]) as state,
        unnest($12::text[]) as queue,
        unnest($13::text[]) as type,
        unnest($14::text[]) as key_digest,
        unnest($15::text[]) as scope,
        unnest($16::text[]) as key_preview
) as i
on conflict on constraint view_job_pkey do update
set source_job_id = coalesce(j.source_job_id, excluded.source_job_id),
    accepted_at = coalesce(j.accepted_at, excluded.accepted_at),
    started_at = coalesce(excluded.started_at, j.started_at),
    finished_at = coalesce(excluded.finished_at, j.finished_at),
    next_run_at = excluded.next_run_at,
    last_position = excluded.last_position,
    attempt = excluded.attempt,
    attempt_budget = excluded.attempt_budget,
    state = excluded.state,
    queue = excluded.queue,
    type = excluded.type,
    key_digest = coalesce(j.key_digest, excluded.key_digest),
    scope = coalesce(j.scope, excluded.scope),
    key_preview = coalesce(j.key_preview, excluded.key_preview)
