-- Where the consumer group is, the epoch the ledger is in, and the last position given. A statement of its own, after
-- the lock: the one that takes the lock has its snapshot from before, and would show where the group was. And the server
-- that says so, in case a later write finds another in its place.
select
    m.epoch as ledger_epoch,
    c.epoch,
    c.position,
    s.position as head,
    pg_postmaster_start_time() as started_at,
    (
        select d.oid::bigint
        from pg_catalog.pg_database as d
        where d.datname = current_database()
    ) as database_oid
from daybook.cursor as c
cross join daybook.meta as m
cross join daybook.sequencer as s
where c.name = $1::text
