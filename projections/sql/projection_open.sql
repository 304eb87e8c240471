-- The version of the live tables. A projection that was never opened is entered with the version of this build.
with created as (
    insert into daybook.projection (name, version)
    select $1::text, $2::integer
    where not exists (
        select
        from daybook.projection as p
        where p.name = $1::text
    )
    on conflict on constraint projection_pkey do nothing
    returning version
)
select version
from created
union all
select version
from daybook.projection
where name = $1::text
