-- One order's rows in one statement: nothing is looked up, nothing is decided, and a key that is bound is an error.
with bound as (
    insert into hand.binding (
        key_hash, job_id, bound_at, expires_at, window_ms, mode, scope, key_preview, request_digest
    )
    values ($1, $2, $3, $4, $5, 'idempotency', $6, $7, $8)
),
accepted as (
    insert into hand.job (
        job_id, run_at, accepted_at, key_hash, priority, attempt_budget, state, queue, type, payload
    )
    values ($2, $3, $3, $1, $9, $10, 'ready', $11, $12, $13)
)
insert into hand.event (recorded_at, job_id, key_hash, kind, scope, key_preview, body)
values ($3, $2, $1, 'enqueue.accepted', $6, $7, $14)
