-- The last position given.
select s.position
from daybook.sequencer as s
