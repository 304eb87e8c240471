-- The live cursor takes the place of the shadow tables' one, in the current epoch.
insert into daybook.cursor as c (name, epoch, position)
values ($1::text, $2::bigint, $3::bigint)
on conflict on constraint cursor_pkey do update
set epoch = excluded.epoch,
    position = excluded.position,
    updated_at = clock_timestamp()
