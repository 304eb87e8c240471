-- Forgets every reader, and empties the views.
truncate daybook.view_conflict, daybook.view_decision_rate, daybook.view_job, daybook.view_key;
truncate daybook.parked, daybook.relay_lease;
delete from daybook.cursor
