-- Removes one batch of what was redriven, the oldest first, and passes over whatever somebody holds. What was discarded is
-- kept: it says who decided so and why, and a relay that reads the event again must know.
--
-- The clock as a subquery, because a volatile function is no bound of an index; the positions as an array, because a join
-- might be planned to read the whole table.
delete from daybook.parked as d
where d.relay = $1::text
    and d.position = any (array(
        select p.position
        from daybook.parked as p
        where p.relay = $1::text
            and p.redriven_at <= (
                select daybook.clock() - $2::bigint * interval '1 millisecond'
            )
        order by p.redriven_at
        limit 500
        for update of p skip locked
    ))
