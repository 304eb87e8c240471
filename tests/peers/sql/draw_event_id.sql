-- What a transaction leaves that appends an event and is rolled back: an xid, and then an event's id.
select pg_current_xact_id(), nextval('daybook.event_event_id_seq')
