-- Each reader's place and what lies beyond it, up to the head $1 that was read a moment ago: one index probe per cursor.
select
    c.name,
    c.epoch,
    c.position,
    greatest($1::bigint - c.position, 0) as events,
    (
        select (extract(epoch from clock_timestamp() - f.sequenced_at) * 1000000)::bigint
        from daybook.feed as f
        where f.position = c.position + 1
            and f.position <= $1::bigint
    ) as age_us,
    (extract(epoch from clock_timestamp() - c.updated_at) * 1000000)::bigint as moved_us
from daybook.cursor as c
order by c.name
