-- The rejections in scope $4 at the positions between $1 and $2, newest first. Compared and
-- ordered as pairs, so that only the index on both will do: see keys_by_scope.sql.
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
where (c.scope, c.position) > ($4::text, $1::bigint)
    and (c.scope, c.position) < ($4::text, $2::bigint)
order by c.scope desc, c.position desc
limit $3::bigint
