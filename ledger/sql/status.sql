-- How far sequencing has come, and what it has left behind. Ages are in microseconds, by the clock that the
-- instant came from, so that the reader's own clock never matters.
select
    clock_timestamp() as at,
    m.epoch,
    s.position,
    (
        select (extract(epoch from clock_timestamp() - f.sequenced_at) * 1000000)::bigint
        from daybook.feed as f
        where f.position = s.position
    ) as head_age_us,
    s.swept,
    u.events,
    u.age_us,
    u.estimated,
    g.gaps,
    g.ids,
    g.stamp::text,
    r.listeners
-- Both have one row. The limits say so to the planner, which would otherwise reckon with a thousand in each, take the
-- whole for expensive, and spend seconds on compiling it.
from (
    select position, swept
    from daybook.sequencer
    limit 1
) as s
cross join (
    select epoch
    from daybook.meta
    limit 1
) as m
cross join daybook.unsequenced($1::integer) as u
cross join (
    select count(distinct g.stamp) as gaps, sum(upper(r.ids) - lower(r.ids))::bigint as ids, min(g.stamp) as stamp
    from daybook.sequencer_gap as g
    cross join lateral unnest(g.ids) as r (ids)
) as g
-- Whoever runs a subscriber or a projection has a connection that listens, and each statement on it says so. What others
-- have asked, only members of pg_read_all_stats see: the count is null where anything was hidden.
cross join (
    select case
        when bool_or(a.query = '<insufficient privilege>') then null
        else count(*) filter (
            where a.query ilike 'listen%daybook_sequenced%' and a.query not ilike '%-- follow'
                or a.query like '-- listening on daybook_sequenced%'
        )
    end as listeners
    from pg_stat_activity as a
    where a.datname = current_database()
        and a.pid <> pg_backend_pid()
) as r
