-- Bindings that have expired, and the jobs they stand for, as a busy day leaves them: keys with the default TTL of 24
-- hours, bound one after the other from 48 hours to 25 hours ago, each job done within a second. The jobs are far from
-- the end of their retention.
--
-- From $1 to $2 of $3 in all; $4 is every job's payload.
with made as materialized (
    select
        n,
        b.bound_at,
        sha256(convert_to('filled key ' || n, 'UTF8')) as key_hash,
        daybook.new_job_id(b.bound_at, daybook.job_id_tail()) as job_id
    from generate_series($1::bigint, $2::bigint) as n
    cross join lateral (
        select now() - interval '48 hours' + n::double precision / $3::bigint * interval '23 hours'
    ) as b (bound_at)
),
done as (
    insert into daybook.job (
        job_id, run_at, accepted_at, finished_at, key_hash, fence, priority, attempt_budget, attempt, state, queue,
        type, worker, payload
    )
    select
        m.job_id, m.bound_at, m.bound_at, m.bound_at + interval '1 second', m.key_hash, 1, 0, 25, 1, 'succeeded',
        'default', 'order.placed', 'worker-1', $4::jsonb
    from made as m
    order by m.n
)
insert into daybook.binding (
    key_hash, job_id, bound_at, expires_at, window_ms, mode, scope, key_preview, request_digest
)
select
    m.key_hash, m.job_id, m.bound_at, m.bound_at + interval '24 hours', 86400000, 'idempotency', 'default',
    'order-' || m.n % 10 || '…', '\x01'::bytea || sha256(convert_to('filled request ' || m.n, 'UTF8'))
from made as m
order by m.n
