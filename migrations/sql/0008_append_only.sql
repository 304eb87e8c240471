set local role daybook_owner;

-- Append-only by privilege and by trigger. The trigger is ALWAYS, so that it also fires under
-- session_replication_role = replica, and it is per statement, so that a statement that happens to
-- match no row is refused just the same.
create function daybook.refuse_change()
returns trigger
language plpgsql
set search_path = pg_catalog, pg_temp
as $$
begin
    raise exception 'daybook.% is append-only: % is not allowed', tg_table_name, tg_op
        using errcode = 'insufficient_privilege',
              hint = 'Events are never altered. To correct the record, append to it.';
end
$$;

create trigger event_append_only
    before update or delete or truncate on daybook.event
    for each statement
    execute function daybook.refuse_change();

create trigger ledger_order_append_only
    before update or delete or truncate on daybook.ledger_order
    for each statement
    execute function daybook.refuse_change();

alter table daybook.event enable always trigger event_append_only;
alter table daybook.ledger_order enable always trigger ledger_order_append_only;

-- The owner has these rights by being the owner until they are taken from it by name.
revoke update, delete, truncate on daybook.event, daybook.ledger_order from daybook_owner;
