-- Everything of the ledger lives in one schema that its owner alone may create in: no other role
-- can put an object in front of ours.
do $$
begin
    -- Keys, scopes and payloads are compared byte for byte as UTF-8.
    if current_setting('server_encoding') <> 'UTF8' then
        raise exception 'daybook needs a database with encoding UTF8, this one has %', current_setting('server_encoding')
            using hint = 'create the database with: create database … encoding ''UTF8'' template template0';
    end if;
end
$$;

create schema daybook authorization daybook_owner;

set local role daybook_owner;

revoke all on schema daybook from public;
grant usage on schema daybook to daybook_app, daybook_relay, daybook_operator;
-- Global for the role, not for the schema: what PUBLIC may do by default cannot be taken away per schema.
alter default privileges revoke execute on functions from public;
comment on schema daybook is 'Daybook: an event-sourced enqueue ledger with an outbox.';

-- What has been applied. The runner compares the checksums of applied files with its own before it adds any.
create table daybook.migration (
    version    integer     not null,
    name       text        not null,
    checksum   text        not null,
    applied_at timestamptz not null default clock_timestamp(),
    constraint migration_pkey primary key (version)
);

grant select on daybook.migration to daybook_app, daybook_relay, daybook_operator;
comment on table daybook.migration is 'The migrations applied to this database.';
