-- The rejections of keys whose digest begins with $4, in scope $5 if that is not null, at the positions between $1 and
-- $2; newest first if $6. One key has few, so they are sorted. 'g' comes right after the hex digits.
select
    c.position,
    c.rejected_at,
    c.scope,
    c.key_digest,
    c.key_preview,
    c.existing_job_id,
    c.existing_mode,
    c.bound_at,
    c.expires_at,
    c.queue,
    c.type,
    c.mode,
    c.fields,
    c.request_digest,
    c.existing_request_digest
from daybook.view_conflict as c
where c.position > $1::bigint
    and c.position < $2::bigint
    and c.key_digest >= $4::text
    and c.key_digest < $4::text || 'g'
    and ($5::text is null or c.scope = $5::text)
order by case when $6::boolean then -c.position else c.position end
limit $3::bigint
