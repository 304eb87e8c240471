-- The keys whose digest begins with $1, in the order of their digests. 'g' comes right after the hex digits.
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
where k.key_digest >= $1::text
    and k.key_digest < $1::text || 'g'
    and ($2::text is null or k.scope = $2::text)
    and k.first_position < $3::bigint
order by k.key_digest, k.first_position
limit $4::bigint
