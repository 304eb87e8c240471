-- Forgets the cursors of unfinished rebuilds of one projection, whatever their version.
delete from daybook.cursor as c
where starts_with(c.name, $1::text)
