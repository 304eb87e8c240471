-- The statements that make, in schema $3, a table like table $2 of schema $1, empty, in the order in which to run
-- them; where $5, those for the indexes that can wait until it is full, as far as they are missing. These are the ones that
-- enforce nothing and are not among $4. Names of constraints and indexes stay: folds use them, and after a swap they
-- are the live ones.
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
        k.oid is null
            and not i.indisunique
            and not i.indisreplident
            and x.relname <> all ($4::text[]) as deferred,
        -- Null, which is refused, and never an index on the live table itself, where the text is not as expected.
        -- Some versions of PostgreSQL call the session's temporary schema pg_temp, others by its name.
        nullif(
            replace(
                replace(
                    pg_get_indexdef(i.indexrelid),
                    format(' ON %I.%I USING ', $1::text, $2::text),
                    format(' ON %I.%I USING ', $3::text, $2::text)
                ),
                format(' ON pg_temp.%I USING ', $2::text),
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
        false as deferred,
        format('create table %I.%I (like %I.%I including all excluding indexes)', $3::text, $2::text, $1::text, $2::text)
            as statement
    from live as l

    union all
    select
        2, i.relname, i.deferred,
        case
            when i.contype = 'x'
                then format('alter table %I.%I add constraint %I %s', $3::text, $2::text, i.conname,
                    pg_get_constraintdef(i.constraint_oid))
            else i.definition
        end
    from indexes as i

    union all
    select
        3, i.relname, i.deferred,
        format('alter table %I.%I add constraint %I %s using index %I%s%s', $3::text, $2::text, i.conname,
            case i.contype when 'p' then 'primary key' else 'unique' end, i.relname,
            case when i.condeferrable then ' deferrable' else '' end,
            case when i.condeferred then ' initially deferred' else '' end)
    from indexes as i
    where i.contype in ('p', 'u')

    union all
    select 4, '', false, format('alter table %I.%I set (%s)', $3::text, $2::text, array_to_string(l.reloptions, ', '))
    from live as l
    where l.reloptions is not null

    union all
    select 4, o.option, false, format('alter table %I.%I set (toast.%s)', $3::text, $2::text, o.option)
    from live as l
    join pg_class as t
        on t.oid = l.reltoastrelid
    cross join lateral unnest(t.reloptions) as o (option)

    union all
    select
        5, '', false,
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
    select 6, '', false, format('comment on table %I.%I is %L', $3::text, $2::text, obj_description(l.oid, 'pg_class'))
    from live as l
    where obj_description(l.oid, 'pg_class') is not null

    union all
    select
        6, i.relname, i.deferred,
        format('comment on index %I.%I is %L', $3::text, i.relname, obj_description(i.indexrelid, 'pg_class'))
    from indexes as i
    where obj_description(i.indexrelid, 'pg_class') is not null

    union all
    select
        6, i.conname, false,
        format('comment on constraint %I on %I.%I is %L', i.conname, $3::text, $2::text,
            obj_description(i.constraint_oid, 'pg_constraint'))
    from indexes as i
    where obj_description(i.constraint_oid, 'pg_constraint') is not null
)
select s.statement
from statements as s
where s.deferred = $5::boolean
    and not (
        s.deferred
        and exists (
            select
            from pg_class as c
            join pg_namespace as n
                on n.oid = c.relnamespace
            where n.nspname = $3::text
                and c.relname = s.name
        )
    )
order by s.step, s.name
