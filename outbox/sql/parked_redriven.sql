-- It was published after all.
update daybook.parked as p
set redriven_at = daybook.clock()
where p.relay = $1::text
    and p.position = $2::bigint
    and p.redriven_at is null
    and p.discarded_at is null
