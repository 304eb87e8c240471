-- The epoch that the ledger is in, and whether the ledger is where that epoch began.
select
    l.epoch,
    l.same,
    l.recorded_system_identifier,
    l.recorded_timeline,
    l.recorded_database_oid,
    l.system_identifier,
    l.timeline,
    l.database_oid
from daybook.check_life() as l
