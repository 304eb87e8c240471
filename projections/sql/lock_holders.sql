-- Who holds a lock on one of the tables ($2) of a schema ($1), longest first.
select distinct l.pid, date_trunc('second', clock_timestamp() - a.xact_start)::text as age
from pg_locks as l
join pg_class as c
    on c.oid = l.relation
join pg_namespace as n
    on n.oid = c.relnamespace
left join pg_stat_activity as a
    on a.pid = l.pid
where l.granted
    and l.database = (
        select d.oid
        from pg_database as d
        where d.datname = current_database()
    )
    and n.nspname = $1::text
    and c.relname = any ($2::text[])
    and l.pid <> pg_backend_pid()
order by age desc nulls last
