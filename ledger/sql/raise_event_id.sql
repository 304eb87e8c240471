-- Makes sure that no event id is drawn a second time; true where that had to be done.
select daybook.raise_event_id() as raised
