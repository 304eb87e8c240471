-- Compare and set: moves the cursor only from where the page began, or the page's writes may have put it, in the epoch the
-- page was read in. Where it is there already, nothing is written.
update daybook.cursor as c
set position = $4::bigint,
    updated_at = clock_timestamp()
from daybook.meta as m
where c.name = $1::text
    and c.epoch = $2::bigint
    and c.position = any ($3::bigint[])
    and c.position < $4::bigint
    and m.epoch = c.epoch
