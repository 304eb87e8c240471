-- Adds one batch, already one row per job. Each event tells the whole of where a job is, so what the batch says last
-- replaces what the table has; null in a column that an event seldom tells means: as it was.
insert into view_job as j (
    job_id, source_job_id, accepted_at, started_at, finished_at, next_run_at, first_position, last_position, attempt,
    attempt_budget, state, queue, type, key_digest, scope, key_preview
)
select
    i.job_id, i.source_job_id, i.accepted_at, i.started_at, i.finished_at, i.next_run_at, i.first_position,
    i.last_position, i.attempt, i.attempt_budget, i.state, i.queue, i.type, i.key_digest, i.scope, i.key_preview
from unnest(
    $1::uuid[], $2::uuid[], $3::timestamptz[], $4::timestamptz[], $5::timestamptz[], $6::timestamptz[], $7::bigint[],
    $8::bigint[], $9::smallint[], $10::smallint[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[],
    $16::text[]
) as i (
    job_id, source_job_id, accepted_at, started_at, finished_at, next_run_at, first_position, last_position, attempt,
    attempt_budget, state, queue, type, key_digest, scope, key_preview
)
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
