-- The cursors that cannot go on as they are: of another epoch than $1, or beyond the last position. The cursor's and the
-- sequencer's row are of one snapshot, so a reader that is under way is never among them.
select c.name, c.epoch, c.position
from daybook.cursor as c
cross join daybook.sequencer as s
where c.epoch <> $1::bigint
    or c.position > s.position
order by c.name
