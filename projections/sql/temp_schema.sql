-- The name of the session's own temporary schema.
select n.nspname
from pg_namespace as n
where n.oid = pg_my_temp_schema()
