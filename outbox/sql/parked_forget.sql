-- Removes one batch of what waits no longer, the oldest first, and passes over whatever somebody holds. Beyond the relay's
-- cursor everything is kept: it may be read again, and what was discarded must still be known then.
--
-- The clock as a subquery, because a volatile function is no bound of an index; the positions as an array, because a join
-- might be planned to read the whole table.
delete from daybook.parked as d
where d.relay = $1::text
    and d.position = any (array(
        select p.position
        from daybook.parked as p
        where p.relay = $1::text
            and coalesce(p.redriven_at, p.discarded_at) <= (
                select daybook.clock() - $3::bigint * interval '1 millisecond'
            )
            and p.position <= (
                select c.position
                from daybook.cursor as c
                where c.name = $2::text
            )
        order by coalesce(p.redriven_at, p.discarded_at)
        limit 500
        for update of p skip locked
    ))
