-- The columns of a table, with their place in the primary key, by which Verify matches rows.
select
    a.attname as name,
    a.atttypid = 'bytea'::regtype as is_bytes,
    a.atttypid = 'bigint'::regtype as is_bigint,
    array_position(k.conkey::smallint[], a.attnum) as key_ordinal
from pg_class as c
join pg_namespace as n
    on n.oid = c.relnamespace
join pg_constraint as k
    on k.conrelid = c.oid
    and k.contype = 'p'
join pg_attribute as a
    on a.attrelid = c.oid
    and a.attnum > 0
    and not a.attisdropped
where n.nspname = $1::text
    and c.relname = $2::text
order by a.attnum
