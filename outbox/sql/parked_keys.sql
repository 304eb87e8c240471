-- Which of these keys are held up on this relay, and which positions from $3 through $4 were discarded: one snapshot, so
-- that an event which is discarded meanwhile is found one way or the other.
select
    k.order_key,
    null::bigint as position
from unnest($2::bytea[]) as k (order_key)
where exists (
    select
    from daybook.parked as p
    where p.relay = $1::text
        and p.order_key = k.order_key
        and p.redriven_at is null
        and p.discarded_at is null
)
union all
select
    null::bytea,
    p.position
from daybook.parked as p
where p.relay = $1::text
    and p.position between $3::bigint and $4::bigint
    and p.discarded_at is not null
