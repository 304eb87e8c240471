-- How many events wait because a relay could not publish them, and since when the first of them does.
select
    count(*) as events,
    (extract(epoch from clock_timestamp() - min(p.parked_at)) * 1000000)::bigint as age_us
from daybook.parked as p
where p.redriven_at is null
    and p.discarded_at is null
