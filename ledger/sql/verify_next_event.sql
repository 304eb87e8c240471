-- The id of the next event beyond $1: windows of ids begin there, so that a million ids that were rolled back cost nothing.
select min(e.event_id)
from daybook.event as e
where e.event_id > $1::bigint
