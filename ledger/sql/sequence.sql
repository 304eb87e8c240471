-- One round of sequencing; nulls where another is at it.
select s.sequenced, s.last_position, s.more
from daybook.sequence($1::integer) as s
