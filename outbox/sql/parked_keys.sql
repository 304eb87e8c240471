-- Which of these keys are held up on this relay.
select k.order_key
from unnest($2::bytea[]) as k (order_key)
where exists (
    select
    from daybook.parked as p
    where p.relay = $1::text
        and p.order_key = k.order_key
        and p.redriven_at is null
)
