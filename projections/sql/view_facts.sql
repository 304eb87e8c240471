-- The views that stand directly on the tables ($2) of a schema ($1), with what makes each of them anew. A view is
-- bound to its tables, not to their names; defined once more, after the swap, it is bound to the new ones and keeps
-- its grants.
--
-- The caller has pinned the search_path, so that the definitions name everything with its schema.
select distinct
    v.relname as name,
    pg_get_userbyid(v.relowner) as owner,
    pg_has_role(v.relowner, 'MEMBER') as may_own,
    format(
        'create or replace view %I.%I %s as %s',
        vn.nspname, v.relname,
        'with (' || array_to_string(v.reloptions, ', ') || ')',
        rtrim(pg_get_viewdef(v.oid), ';')
    ) as statement
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
    and v.relkind = 'v'
join pg_namespace as vn
    on vn.oid = v.relnamespace
where n.nspname = $1::text
    and c.relname = any ($2::text[])
order by name
