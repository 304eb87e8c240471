-- Events from number $1 to $2 as enqueuing leaves them, one each 10 milliseconds from $3 on: accepted orders, each under
-- a key of its own, and one in twenty is the rejection of other work under the key of the order before it. Keys and jobs
-- have no rows of their own: whoever reads the ledger reads nothing else.
--
-- The bodies' parts are in the order in which enqueuing puts them, so that a parser finds them where it usually does.
insert into daybook.event (recorded_at, job_id, key_hash, kind, scope, key_preview, body)
select
    o.at, o.job_id, o.key_hash,
    case when o.rejected then 'enqueue.conflict_rejected' else 'enqueue.accepted' end,
    o.scope, o.key_preview,
    (
        case
            when o.rejected then concat(
                '{"v":1,"job_id":"', o.job_id,
                '","type":"', o.type, '","queue":"default","mode":"idempotency","fields":["payload"],"request_digest":"',
                o.request_digest, '","scope":"', o.scope, '","key_digest":"', daybook.key_digest(o.key_hash),
                '","key_preview":"', o.key_preview, '","existing_mode":"idempotency","existing_request_digest":"',
                o.request_digest, '","bound_at":"', daybook.instant(o.at),
                '","expires_at":"', daybook.instant(o.at + interval '24 hours'), '"}'
            )
            else concat(
                '{"v":1,"type":"', o.type, '","queue":"default","priority":0,"attempt_budget":25,"payload_bytes":238,',
                '"request_digest":"', o.request_digest, '","mode":"idempotency","scope":"', o.scope,
                '","key_digest":"', daybook.key_digest(o.key_hash), '","key_preview":"', o.key_preview,
                '","window_ms":86400000,"job_id":"', o.job_id,
                '","run_at":"', daybook.instant(o.at), '","expires_at":"', daybook.instant(o.at + interval '24 hours'), '"}'
            )
        end
    )::json
from (
    select
        n,
        k.rejected,
        $3::timestamptz + n * interval '10 milliseconds' as at,
        sha256(convert_to('filled key ' || k.order_number, 'UTF8')) as key_hash,
        daybook.new_job_id(
            $3::timestamptz + k.order_number * interval '10 milliseconds',
            '7' || right(md5('filled job ' || k.order_number), 19)
        ) as job_id,
        '01' || encode(sha256(convert_to('filled request ' || n, 'UTF8')), 'hex') as request_digest,
        'scope-' || k.order_number % 5 as scope,
        'type-' || k.order_number % 7 as type,
        'order-' || k.order_number % 10 || '…' as key_preview
    from generate_series($1::bigint, $2::bigint) as n
    cross join lateral (
        select n % 20 = 0 as rejected, case when n % 20 = 0 then n - 1 else n end as order_number
    ) as k
    offset 0
) as o
order by o.n
