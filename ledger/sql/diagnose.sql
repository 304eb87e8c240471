-- What tells whether the ledger is where its epoch began, and whether its parts belong together.
select
    d.epoch,
    d.ledger_id,
    coalesce(d.follow_timelines, false) as follow_timelines,
    d.recorded_system_identifier,
    d.recorded_timeline,
    d.recorded_database_oid,
    d.system_identifier,
    d.timeline,
    d.database_oid,
    d.sequencer_position,
    d.sequencer_head,
    d.swept,
    d.last_position,
    d.last_event_id,
    d.last_ordered_event_id,
    d.next_event_id,
    coalesce(d.foreign_xids, false) as foreign_xids
from daybook.diagnose() as d
