-- Pins the search_path until the transaction ends, and says what it was. Read after the cursor's row is locked, the
-- version is the one the tables are going to have until this transaction ends: a rebuild's swap needs that lock, too.
select
    current_setting('search_path') as previous,
    set_config('search_path', $1::text, true) as path,
    (
        select p.version
        from daybook.projection as p
        where p.name = $2::text
    ) as version
