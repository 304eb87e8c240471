-- What sequencing has reached, as its own row and as the ledger says, and the number of events it stands for.
select
    s.position,
    s.head,
    s.swept,
    coalesce((
        select max(o.position)
        from daybook.ledger_order as o
    ), 0) as last_position,
    coalesce((
        select max(e.event_id)
        from daybook.event as e
    ), 0) as last_event_id
from daybook.sequencer as s
