-- Many orders' rows in one statement, set by set.
with request as materialized (
    select r.*
    from unnest($1::bytea[], $2::uuid[], $3::text[], $4::bytea[], $5::jsonb[], $6::json[]) with ordinality
        as r (key_hash, job_id, key_preview, request_digest, payload, body, ordinal)
),
bound as (
    insert into hand.binding (
        key_hash, job_id, bound_at, expires_at, window_ms, mode, scope, key_preview, request_digest
    )
    select
        r.key_hash, r.job_id, $7::timestamptz, $8::timestamptz, $9::bigint, 'idempotency', $10::text, r.key_preview,
        r.request_digest
    from request as r
    order by r.key_hash
),
accepted as (
    insert into hand.job (
        job_id, run_at, accepted_at, key_hash, priority, attempt_budget, state, queue, type, payload
    )
    select
        r.job_id, $7::timestamptz, $7::timestamptz, r.key_hash, $11::smallint, $12::smallint, 'ready', $13::text,
        $14::text, r.payload
    from request as r
    order by r.ordinal
)
insert into hand.event (recorded_at, job_id, key_hash, kind, scope, key_preview, body)
select $7::timestamptz, r.job_id, r.key_hash, 'enqueue.accepted', $10::text, r.key_preview, r.body
from request as r
order by r.ordinal
