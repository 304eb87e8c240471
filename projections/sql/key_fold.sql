-- Adds one batch, already one row per key. Within the batch, mode is null where no job was accepted, expires_at where
-- nothing has set it, last_outcome where nothing was decided: then what the table has stays.
--
-- A job accepted in the batch begins a new binding: how the one before it ended goes, unless the new one has ended,
-- too.
--
-- The arrays are unnested in the select list and not by one unnest of all of them: that would first put each array into a
-- table of its own, which takes as long as half the rest.
insert into view_key as k (
    key_hash, scope, key_preview, job_id, mode, accepted, replaced, non_replaceable, conflicts, first_decision_at,
    last_decision_at, last_outcome, expires_at, ended_at, ended_as, first_position, last_position
)
select
    i.key_hash, i.scope, i.key_preview, i.job_id, i.mode, i.accepted, i.replaced, i.non_replaceable, i.conflicts,
    i.first_decision_at, i.last_decision_at, i.last_outcome, i.expires_at, i.ended_at, i.ended_as, i.first_position,
    i.last_position
from (
    select
        unnest($1::bytea[]) as key_hash,
        unnest($2::text[]) as scope,
        unnest($3::text[]) as key_preview,
        unnest($4::uuid[]) as job_id,
        unnest($5::text[]) as mode,
        unnest($6::bigint[]) as accepted,
        unnest($7::bigint[]) as replaced,
        unnest($8::bigint[]) as non_replaceable,
        unnest($9::bigint[]) as conflicts,
        unnest($10::timestamptz[]) as first_decision_at,
        unnest($11::timestamptz[]) as last_decision_at,
        unnest($12::text[]) as last_outcome,
        unnest($13::timestamptz[]) as expires_at,
        unnest($14::timestamptz[]) as ended_at,
        unnest($15::text[]) as ended_as,
        unnest($16::bigint[]) as first_position,
        unnest($17::bigint[]) as last_position
) as i
on conflict on constraint view_key_pkey do update
set job_id = case when excluded.mode is null then coalesce(k.job_id, excluded.job_id) else excluded.job_id end,
    mode = coalesce(excluded.mode, k.mode),
    accepted = k.accepted + excluded.accepted,
    replaced = k.replaced + excluded.replaced,
    non_replaceable = k.non_replaceable + excluded.non_replaceable,
    conflicts = k.conflicts + excluded.conflicts,
    first_decision_at = coalesce(k.first_decision_at, excluded.first_decision_at),
    last_decision_at = coalesce(excluded.last_decision_at, k.last_decision_at),
    last_outcome = coalesce(excluded.last_outcome, k.last_outcome),
    expires_at = coalesce(excluded.expires_at, k.expires_at),
    ended_at = case when excluded.mode is null then coalesce(excluded.ended_at, k.ended_at) else excluded.ended_at end,
    ended_as = case when excluded.mode is null then coalesce(excluded.ended_as, k.ended_as) else excluded.ended_as end,
    last_position = excluded.last_position
