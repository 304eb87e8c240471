-- What the views on tables ($2) of schema $1 need and the tables of the same names in schema $3 do not have: columns that
-- are missing there or of another type.
select distinct
    v.oid::regclass::text as view,
    c.relname || '.' || a.attname as column
from pg_class as c
join pg_namespace as n
    on n.oid = c.relnamespace
join pg_depend as d
    on d.refclassid = 'pg_class'::regclass
    and d.refobjid = c.oid
    and d.classid = 'pg_rewrite'::regclass
join pg_rewrite as r
    on r.oid = d.objid
join pg_class as v
    on v.oid = r.ev_class
join pg_attribute as a
    on a.attrelid = c.oid
    and a.attnum = d.refobjsubid
    and a.attnum > 0
left join pg_attribute as m
    on m.attrelid = to_regclass(format('%I.%I', $3::text, c.relname))
    and m.attname = a.attname
    and not m.attisdropped
where n.nspname = $1::text
    and c.relname = any ($2::text[])
    and (m.atttypid, m.atttypmod) is distinct from (a.atttypid, a.atttypmod)
order by view, "column"
