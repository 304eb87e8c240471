-- The last event id that was drawn. Asked every few milliseconds: it reads no table.
select i.last_value - (not i.is_called)::integer as drawn
from daybook.event_event_id_seq as i
