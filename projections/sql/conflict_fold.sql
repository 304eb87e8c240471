-- Adds one batch of rejections. The arrays of an array must all be of one length, so the names of the differing fields
-- come as JSON.
insert into view_conflict (
    position, rejected_at, bound_at, expires_at, existing_job_id, key_digest, scope, key_preview, queue, type, mode,
    existing_mode, fields, request_digest, existing_request_digest
)
select
    i.position, i.rejected_at, i.bound_at, i.expires_at, i.existing_job_id, i.key_digest, i.scope, i.key_preview,
    i.queue, i.type, i.mode, i.existing_mode,
    array(
        select f.field
        from json_array_elements_text(i.fields::json) with ordinality as f (field, ordinal)
        order by f.ordinal
    ),
    i.request_digest, i.existing_request_digest
from unnest(
    $1::bigint[], $2::timestamptz[], $3::timestamptz[], $4::timestamptz[], $5::uuid[], $6::text[], $7::text[],
    $8::text[], $9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[]
) as i (
    position, rejected_at, bound_at, expires_at, existing_job_id, key_digest, scope, key_preview, queue, type, mode,
    existing_mode, fields, request_digest, existing_request_digest
)
