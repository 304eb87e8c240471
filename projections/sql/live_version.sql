-- The version of a projection's live tables; null where it was never opened. Read after the cursor's row is locked, it is
-- the one the tables are going to have until this transaction ends: a rebuild's swap needs that lock, too.
select (
    select p.version
    from daybook.projection as p
    where p.name = $1::text
) as version
