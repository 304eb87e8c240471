-- The transaction that keeps gaps from being forgotten: the oldest one with an xid in the whole cluster, whatever
-- database it is in, since a gap is forgotten once the snapshot's xmin has reached its stamp. Vacuums have xids that
-- do not count; asking for the one that is xmin leaves them out.
--
-- Only members of pg_read_all_stats see when somebody else's transaction began; pid and xid everybody sees.
with oldest as (
    select pg_snapshot_xmin(pg_current_snapshot()) as xid
)
select
    h.xid::text,
    h.pid,
    h.gid,
    h.database,
    h.application_name,
    h.state,
    (extract(epoch from clock_timestamp() - h.began_at) * 1000000)::bigint as age_us,
    h.query_start
from oldest as o
cross join lateral (
    select o.xid, a.pid, null as gid, a.datname as database, a.application_name, a.state, a.xact_start as began_at, a.query_start
    from pg_stat_activity as a
    where a.backend_xid = o.xid::xid
    union all
    select o.xid, null, p.gid, p.database, null, 'prepared', p.prepared, null
    from pg_prepared_xacts as p
    where p.transaction = o.xid::xid
) as h
where exists (
    select
    from daybook.sequencer_gap as g
    where g.stamp > o.xid
)
