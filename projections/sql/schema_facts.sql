-- Of the schemas a rebuild needs ($1), those that are missing, and those in which role $2 may not create.
select
    s.name,
    n.oid is not null as exists,
    coalesce(has_schema_privilege($2::text, n.oid, 'CREATE'), false) as usable
from unnest($1::text[]) as s (name)
left join pg_namespace as n
    on n.nspname = s.name
order by s.name
