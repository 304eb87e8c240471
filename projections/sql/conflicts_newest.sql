-- The rejections at the positions between $1 and $2, newest first.
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
order by c.position desc
limit $3::bigint
