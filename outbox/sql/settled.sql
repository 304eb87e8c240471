-- The last event id that was drawn, how far sequencing has come, and whether no id below its head may still appear.
select
    i.last_value - (not i.is_called)::integer as drawn,
    s.position,
    s.head,
    not exists (
        select
        from daybook.sequencer_gap as g
    ) as settled
from daybook.sequencer as s
cross join daybook.event_event_id_seq as i
