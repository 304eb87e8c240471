-- Says that runners are there. In the order of their names, so that two processes that run the same ones never deadlock.
insert into daybook.runner_beat as b (name, kind, host, pid)
select n.name, $2::text, $3::text, $4::integer
from unnest($1::text[]) as n (name)
order by n.name
on conflict on constraint runner_beat_pkey do update
set kind = excluded.kind,
    host = excluded.host,
    pid = excluded.pid,
    beat_at = excluded.beat_at
