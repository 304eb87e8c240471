-- Adds one batch of rejections. The arrays of an array must all be of one length, so the names of the differing fields
-- come as JSON.
--
-- The arrays are unnested in the select list and not by one unnest of all of them: that would first put each array into a
-- table of its own, which takes as long as half the rest.
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
from (
    select
        unnest($1::bigint[]) as position,
        unnest($2::timestamptz[]) as rejected_at,
        unnest($3::timestamptz[]) as bound_at,
        unnest($4::timestamptz[]) as expires_at,
        unnest($5::uuid[]) as existing_job_id,
        unnest($6::text[]) as key_digest,
        unnest($7::text[]) as scope,
        unnest($8::text[]) as key_preview,
        unnest($9::text[]) as queue,
        unnest($10::text[]) as type,
        unnest($11::text[]) as mode,
        unnest($12::text[]) as existing_mode,
        unnest($13::text[]) as fields,
        unnest($14::text[]) as request_digest,
        unnest($15::text[]) as existing_request_digest
) as i
