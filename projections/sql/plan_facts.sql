-- What a rebuild of projection $1 is about to do: the version that is live, null where it was never opened, the events of
-- its kinds ($2; null is all), and the bytes of its live tables ($4) in schema $3.
select
    (
        select p.version
        from daybook.projection as p
        where p.name = $1::text
    ) as live_version,
    (
        select count(*)
        from daybook.event as e
        where $2::text[] is null
            or e.kind = any ($2::text[])
    ) as events,
    (
        select coalesce(sum(pg_total_relation_size(to_regclass(format('%I.%I', $3::text, t.name)))), 0)::bigint
        from unnest($4::text[]) as t (name)
    ) as bytes
