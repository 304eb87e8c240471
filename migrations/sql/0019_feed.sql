set local role daybook_owner;

-- The events in their order, as everybody but the sequencer sees them: with the digest of the key, never its hash.
create view daybook.feed as
select
    o.position,
    e.event_id,
    e.kind,
    e.job_id,
    e.scope,
    daybook.key_digest(e.key_hash) as key_digest,
    e.key_preview,
    e.body,
    e.recorded_at,
    o.sequenced_at
from daybook.ledger_order as o
join daybook.event as e
    on e.event_id = o.event_id;

comment on view daybook.feed is 'The events in the order of their positions; key digests, never keys or full hashes.';

-- Projections fold by key hash, and the sequencer's own bookkeeping is what lag is told from.
grant select on daybook.event, daybook.ledger_order, daybook.feed, daybook.sequencer, daybook.sequencer_gap to daybook_relay;
grant select on daybook.feed, daybook.sequencer, daybook.sequencer_gap to daybook_operator;

-- A reader's place.
create table daybook.cursor (
    name       text        not null,
    epoch      bigint      not null,
    position   bigint      not null,
    created_at timestamptz not null default clock_timestamp(),
    updated_at timestamptz not null default clock_timestamp(),
    constraint cursor_pkey primary key (name),
    constraint cursor_position_not_negative check (position >= 0)
)
with (fillfactor = 20);

comment on table daybook.cursor is 'How far each consumer group and each projection has come.';
grant select, insert, update, delete on daybook.cursor to daybook_relay;
grant select on daybook.cursor to daybook_operator;
