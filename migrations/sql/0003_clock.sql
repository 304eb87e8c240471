set local role daybook_owner;

-- The one clock of the ledger. Every expiry, window, run time and event time comes from here, read
-- after the lock that makes it true, and never from now(), which is the start of the caller's
-- transaction. Tests replace this function to move time; nothing else may.
--
-- It has no SET clause and no SECURITY DEFINER on purpose: so PL/pgSQL inlines it. Its body is bound when it is
-- made, so that it means the same under any search_path.
create function daybook.clock()
returns timestamptz
language sql
volatile
return clock_timestamp();

grant execute on function daybook.clock() to daybook_app, daybook_relay, daybook_operator;
