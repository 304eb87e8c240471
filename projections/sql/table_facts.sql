-- What has to be known about the tables ($2) of a schema ($1) before they are rebuilt: who owns them, and what
-- hangs on them that cannot be made anew for other tables.
select
    t.name,
    c.oid is not null as exists,
    coalesce(pg_get_userbyid(c.relowner), '') as owner,
    coalesce(pg_has_role(c.relowner, 'MEMBER'), false) as may_own,
    array_remove(
        array[
            case when c.relkind <> 'r' then 'it is not a plain table' end,
            -- The session's own temporary tables are a model that is about to be copied.
            case
                when c.relpersistence <> 'p' and n.oid is distinct from nullif(pg_my_temp_schema(), 0)
                    then 'it is unlogged or temporary'
            end,
            case when c.relrowsecurity then 'it has row security' end,
            case
                when exists (
                    select
                    from pg_inherits as h
                    where c.oid in (h.inhrelid, h.inhparent)
                )
                    then 'it inherits or is inherited from'
            end,
            case
                when not exists (
                    select
                    from pg_constraint as k
                    where k.conrelid = c.oid
                        and k.contype = 'p'
                )
                    then 'it has no primary key'
            end
        ]
        || array(
            select distinct pg_describe_object(d.classid, d.objid, 0) || ' depends on it'
            from pg_depend as d
            left join pg_rewrite as r
                on d.classid = 'pg_rewrite'::regclass
                and r.oid = d.objid
            left join pg_class as v
                on v.oid = r.ev_class
            left join pg_constraint as k
                on d.classid = 'pg_constraint'::regclass
                and k.oid = d.objid
            -- A serial column's sequence; an identity column's is made anew with the column.
            left join pg_class as q
                on d.classid = 'pg_class'::regclass
                and q.oid = d.objid
                and q.relkind = 'S'
                and d.deptype = 'a'
            where (
                    d.refclassid = 'pg_class'::regclass
                    and d.refobjid = c.oid
                    and (
                        d.classid in (
                            'pg_trigger'::regclass, 'pg_policy'::regclass, 'pg_publication_rel'::regclass, 'pg_proc'::regclass
                        )
                        or k.contype = 'f'
                        or q.oid is not null
                        -- A plain view is redefined in the swap; what is bound to its rule or to another kind of rule
                        -- is not.
                        or v.relkind <> 'v'
                        or r.rulename <> '_RETURN'
                    )
                )
                -- The type of the table's rows, and the array of it.
                or (
                    d.refclassid = 'pg_type'::regclass
                    and d.refobjid in (
                        c.reltype,
                        (
                            select y.typarray
                            from pg_type as y
                            where y.oid = c.reltype
                        )
                    )
                    and d.deptype = 'n'
                )
        ),
        null
    ) as problems
from unnest($2::text[]) as t (name)
left join pg_namespace as n
    on n.nspname = $1::text
left join pg_class as c
    on c.relnamespace = n.oid
    and c.relname = t.name
order by t.name
