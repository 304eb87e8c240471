-- How many ids of events have been seen, and the last position: what decides into how many slices the work is cut.
select s.head, s.position
from daybook.sequencer as s
