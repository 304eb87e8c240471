-- Whether all tables ($2) of a schema ($1) are also in another ($3), with the same columns.
select coalesce(bool_and(l.columns is not distinct from o.columns and o.columns is not null), false) as same
from unnest($2::text[]) as t (name)
cross join lateral (
    select array_agg((a.attname, a.atttypid, a.atttypmod, a.attnotnull)::text order by a.attname) as columns
    from pg_attribute as a
    where a.attrelid = to_regclass(format('%I.%I', $1::text, t.name))
        and a.attnum > 0
        and not a.attisdropped
) as l
cross join lateral (
    select array_agg((a.attname, a.atttypid, a.atttypmod, a.attnotnull)::text order by a.attname) as columns
    from pg_attribute as a
    where a.attrelid = to_regclass(format('%I.%I', $3::text, t.name))
        and a.attnum > 0
        and not a.attisdropped
) as o
