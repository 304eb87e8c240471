-- The keys that came before position $1, newest first.
select
    k.key_digest,
    k.key_preview,
    k.scope,
    k.job_id,
    k.mode,
    k.accepted,
    k.replaced,
    k.non_replaceable,
    k.conflicts,
    k.last_outcome,
    k.first_decision_at,
    k.last_decision_at,
    k.expires_at,
    k.ended_as,
    k.ended_at,
    k.first_position,
    k.last_position
from daybook.view_key as k
where k.first_position < $1::bigint
order by k.first_position desc
limit $2::bigint
