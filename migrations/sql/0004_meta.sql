set local role daybook_owner;

-- One row: which life of the ledger this is. A cursor is (epoch, position); a restore or a rewind
-- starts a new epoch, so that a consumer of the old one stops instead of skipping events in silence.
create table daybook.meta (
    singleton         boolean     not null default true,
    epoch             bigint      not null default 1,
    ledger_id         uuid        not null default gen_random_uuid(),
    system_identifier bigint,
    created_at        timestamptz not null default clock_timestamp(),
    constraint meta_pkey primary key (singleton),
    constraint meta_is_one_row check (singleton),
    constraint meta_epoch_positive check (epoch > 0)
);

insert into daybook.meta (system_identifier)
select s.system_identifier
from pg_control_system() as s;

grant select on daybook.meta to daybook_relay, daybook_operator;
comment on table daybook.meta is 'One row: the epoch of the ledger and the cluster it was made in.';
