-- The keys of one scope that came before position $2, newest first. Compared and ordered as pairs, so that only the
-- index on both will do: the one on positions alone looks as good for most scopes, and reads the whole table for a
-- rare one.
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
where (k.scope, k.first_position) > ($1::text, 0::bigint)
    and (k.scope, k.first_position) < ($1::text, $2::bigint)
order by k.scope desc, k.first_position desc
limit $3::bigint
