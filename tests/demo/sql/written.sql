-- What the story has left behind, on both sides.
select 'job' as name, count(*) as rows
from daybook.job
union all
select 'binding', count(*)
from daybook.binding
union all
select 'event', count(*)
from daybook.event
union all
select e.kind, count(*)
from daybook.event as e
group by e.kind
union all
select 'position', max(o.position)
from daybook.ledger_order as o
union all
select 'orders', count(*)
from shop.orders
union all
select 'orders with their job', count(*)
from shop.orders as o
join daybook.job as j
    on j.job_id = o.job_id
union all
select 'payments', count(*)
from shop.payments
union all
select 'payments with their job', count(*)
from shop.payments as p
join daybook.job as j
    on j.job_id = p.job_id
union all
select 'sold', 10 - sum(s.available)
from shop.stock as s
union all
select 'of the order rolled back', count(*)
from shop.orders as o
where o.number = '2026-000483'
