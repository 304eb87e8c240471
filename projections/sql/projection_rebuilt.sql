-- The live tables are of this version from here on.
insert into daybook.projection as p (name, version, rebuilt_at)
values ($1::text, $2::integer, clock_timestamp())
on conflict on constraint projection_pkey do update
set version = excluded.version,
    rebuilt_at = excluded.rebuilt_at
