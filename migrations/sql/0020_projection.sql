-- Two schemas for what rebuilding needs besides the live tables: the shadow tables while they are filled, and
-- after the swap the tables that were live before. The right to create schemas is that of whoever migrates, not of
-- the owner role, which the migrations before this one have become for the rest of the transaction.
set local role to default;

create schema daybook_rebuild authorization daybook_owner;
create schema daybook_old authorization daybook_owner;

set local role daybook_owner;

revoke all on schema daybook_rebuild, daybook_old from public;
comment on schema daybook_rebuild is 'Projections that are being rebuilt, not yet complete.';
comment on schema daybook_old is 'Tables of projections as they were before the last rebuild, until they are dropped.';

-- Which version of each projection the live tables hold. A runner of another version must not fold into them.
create table daybook.projection (
    name       text        not null,
    version    integer     not null,
    created_at timestamptz not null default clock_timestamp(),
    rebuilt_at timestamptz,
    constraint projection_pkey primary key (name),
    constraint projection_version_positive check (version > 0)
);

grant select, insert, update on daybook.projection to daybook_relay;
grant select on daybook.projection to daybook_operator;
comment on table daybook.projection is 'The version of each projection that its live tables hold.';
comment on column daybook.projection.rebuilt_at is 'When a rebuild last took the place of the tables; null where none has.';
