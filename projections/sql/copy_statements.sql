-- The statements that make, in schema $3, a table like table $2 of schema $1, empty, in the order in which to run
-- them. Names of constraints and indexes stay: folds use them, and after a swap they are the live ones.
with live as (
    select c.oid, c.relname, c.reloptions, c.reltoastrelid, c.relreplident
    from pg_class as c
    join pg_namespace as n
        on n.oid = c.relnamespace
    where n.nspname = $1::text
        and c.relname = $2::text
),
-- The text of an index names its table with the schema, right before the method.
indexes as (
    select
        i.indexrelid,
        x.relname,
        k.oid as constraint_oid,
        k.conname,
        k.contype,
        k.condeferrable,
        k.condeferred,
        i.indisreplident,
        -- Null, which is refused, and never an index on the live table itself, where the text is not as expected.
        nullif(
            replace(
                pg_get_indexdef(i.indexrelid),
                format(' ON %I.%I USING ', $1::text, $2::text),
                format(' ON %I.%I USING ', $3::text, $2::text)
            ),
            pg_get_indexdef(i.indexrelid)
        ) as definition
    from live as l
    join pg_index as i
        on i.indrelid = l.oid
    join pg_class as x
        on x.oid = i.indexrelid
    left join pg_constraint as k
        on k.conindid = i.indexrelid
        and k.conrelid = l.oid
        and k.contype in ('p', 'u', 'x')
),
statements as (
    select
        1 as step,
        '' as name,
        format('create table %I.%I (like %I.%I including all excluding indexes)', $3::text, $2::text, $1::text, $2::text)
            as statement
    from live as l

    union all
    select
        2, i.relname,
        case
            when i.contype = 'x'
                then format('alter table %I.%I add constraint %I %s', $3::text, $2::text, i.conname,
                    pg_get_constraintdef(i.constraint_oid))
            else i.definition
        end
    from indexes as i

    union all
    select
        3, i.relname,
        format('alter table %I.%I add constraint %I %s using index %I%s%s', $3::text, $2::text, i.conname,
            case i.contype when 'p' then 'primary key' else 'unique' end, i.relname,
            case when i.condeferrable then ' deferrable' else '' end,
            case when i.condeferred then ' initially deferred' else '' end)
    from indexes as i
    where i.contype in ('p', 'u')

    union all
    select 4, '', format('alter table %I.%I set (%s)', $3::text, $2::text, array_to_string(l.reloptions, ', '))
    from live as l
    where l.reloptions is not null

    union all
    select 4, o.option, format('alter table %I.%I set (toast.%s)', $3::text, $2::text, o.option)
    from live as l
    join pg_class as t
        on t.oid = l.reltoastrelid
    cross join lateral unnest(t.reloptions) as o (option)

    union all
    select
        5, '',
        format('alter table %I.%I replica identity %s', $3::text, $2::text,
            case l.relreplident
                when 'f' then 'full'
                when 'n' then 'nothing'
                else 'using index ' || quote_ident((
                    select i.relname
                    from indexes as i
                    where i.indisreplident
                ))
            end)
    from live as l
    where l.relreplident <> 'd'

    union all
    select 6, '', format('comment on table %I.%I is %L', $3::text, $2::text, obj_description(l.oid, 'pg_class'))
    from live as l
    where obj_description(l.oid, 'pg_class') is not null

    union all
    select
        6, i.relname,
        format('comment on index %I.%I is %L', $3::text, i.relname, obj_description(i.indexrelid, 'pg_class'))
    from indexes as i
    where obj_description(i.indexrelid, 'pg_class') is not null

    union all
    select
        6, i.conname,
        format('comment on constraint %I on %I.%I is %L', i.conname, $3::text, $2::text,
            obj_description(i.constraint_oid, 'pg_constraint'))
    from indexes as i
    where obj_description(i.constraint_oid, 'pg_constraint') is not null
)
select s.statement
from statements as s
order by s.step, s.name
