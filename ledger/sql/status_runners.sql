-- When each runner was last heard of.
select
    b.name,
    b.kind,
    b.host,
    b.pid,
    (extract(epoch from clock_timestamp() - b.beat_at) * 1000000)::bigint as age_us
from daybook.runner_beat as b
order by b.name
