-- The statements that give table $2 of schema $3 the grants of the table of that name in schema $1, where both have the
-- column; and unless $4, no others.
with tables as (
    select c.oid, n.nspname, c.relowner, coalesce(c.relacl, acldefault('r', c.relowner)) as acl
    from pg_class as c
    join pg_namespace as n
        on n.oid = c.relnamespace
    where n.nspname in ($1::text, $3::text)
        and c.relname = $2::text
),
statements as (
    -- Default privileges may have granted what the live table does not.
    select
        1 as step,
        0::bigint as ordinal,
        format('revoke all on table %I.%I from %s', $3::text, $2::text, g.grantee) as statement
    from (
        select distinct case a.grantee when 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end as grantee
        from tables as t
        cross join lateral aclexplode(t.acl) as a
        where t.nspname = $3::text
            -- A table that is new with this version has nobody to take its owner's grants from.
            and (
                a.grantee <> t.relowner
                or exists (
                    select
                    from tables as o
                    where o.nspname = $1::text
                )
            )
    ) as g
    where not $4::boolean

    union all
    select
        2,
        a.ordinal,
        format('grant %s on table %I.%I to %s%s', a.privilege_type, $3::text, $2::text,
            case a.grantee when 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end,
            case when a.is_grantable then ' with grant option' else '' end)
    from tables as t
    cross join lateral aclexplode(t.acl) with ordinality
        as a (grantor, grantee, privilege_type, is_grantable, ordinal)
    where t.nspname = $1::text
        and not ($4::boolean and a.grantee = t.relowner)

    union all
    select
        3,
        a.ordinal,
        format('grant %s (%I) on table %I.%I to %s%s', a.privilege_type, b.attname, $3::text, $2::text,
            case a.grantee when 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end,
            case when a.is_grantable then ' with grant option' else '' end)
    from tables as t
    join pg_attribute as b
        on b.attrelid = t.oid
        and b.attnum > 0
        and not b.attisdropped
    cross join lateral aclexplode(b.attacl) with ordinality
        as a (grantor, grantee, privilege_type, is_grantable, ordinal)
    where t.nspname = $1::text
        and exists (
            select
            from tables as o
            join pg_attribute as d
                on d.attrelid = o.oid
                and d.attname = b.attname
                and not d.attisdropped
            where o.nspname = $3::text
        )
)
select s.statement
from statements as s
order by s.step, s.ordinal, s.statement
