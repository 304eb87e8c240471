set local role daybook_owner;

-- Who moves a relay's events, and until when she may go on without saying so again. A row and not a lock: nothing is
-- held open while a broker is slow, and a process that was killed loses the relay by doing nothing.
--
-- The lease saves work; it is not what keeps events from being lost. That is the compare-and-set of the cursor.
create table daybook.relay_lease (
    name       text        not null,
    holder     uuid        not null,
    expires_at timestamptz not null,
    beat_at    timestamptz not null default clock_timestamp(),
    constraint relay_lease_pkey primary key (name)
)
with (fillfactor = 20);

comment on table daybook.relay_lease is 'Which process runs each relay, and each redrive of parked events, until when.';
grant select, insert, update on daybook.relay_lease to daybook_relay;
grant select on daybook.relay_lease to daybook_operator;

-- Events that a relay could not publish, and those behind them: while an event of a key is parked, so are the later
-- ones of that key, because their order is kept. Of other keys everything goes on.
create table daybook.parked (
    relay          text        not null,
    position       bigint      not null,
    event_id       bigint      not null,
    attempts       integer     not null,
    parked_at      timestamptz not null default clock_timestamp(),
    redriven_at    timestamptz,
    discarded_at   timestamptz,
    order_key      bytea       not null,
    reason         text        not null,
    discard_actor  text,
    discard_reason text,
    constraint parked_pkey primary key (relay, position),
    constraint parked_attempts_not_negative check (attempts >= 0),
    constraint parked_ends_once check (redriven_at is null or discarded_at is null),
    constraint parked_discard_has_actor check (num_nulls(discarded_at, discard_actor, discard_reason) in (0, 3))
);

-- Asked for each page that a relay publishes: which of its keys are held up. Nearly always none, and then it is empty.
create index parked_waiting
    on daybook.parked (relay, order_key, position)
    where redriven_at is null
        and discarded_at is null;

-- What a redrive goes through, however many were redriven before.
create index parked_in_order
    on daybook.parked (relay, position)
    where redriven_at is null
        and discarded_at is null;

-- What a relay must pass over when it reads a page again after a crash. Asked for each page, and nearly always empty.
create index parked_discarded
    on daybook.parked (relay, position)
    where discarded_at is not null;

-- What upkeep goes through: those that were redriven, the oldest first. Those that were discarded stay.
create index parked_redriven
    on daybook.parked (relay, redriven_at)
    where redriven_at is not null;

comment on table daybook.parked is 'Events that a relay has set aside: position, reason, and since when.';
comment on column daybook.parked.attempts is 'How often publishing it was tried; 0 where it waits behind an earlier event of its key.';
comment on column daybook.parked.order_key is 'What it keeps its order with: the key hash; without a key the job, without a job itself.';
comment on column daybook.parked.redriven_at is 'When it was published after all; null while it waits.';
comment on column daybook.parked.discarded_at is 'When an operator decided that it is never to be published; null otherwise.';
comment on column daybook.parked.discard_actor is 'Who decided so.';
comment on column daybook.parked.discard_reason is 'Why.';

grant select, insert, update, delete on daybook.parked to daybook_relay;
-- No full hash of a key, and no job ID in its place.
grant select (
    relay, position, event_id, attempts, parked_at, redriven_at, discarded_at, reason, discard_actor, discard_reason
) on daybook.parked to daybook_operator;
