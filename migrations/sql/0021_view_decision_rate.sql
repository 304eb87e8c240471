set local role daybook_owner;

-- How often PostgreSQL decided what. Replays and coalesced requests leave no event, and so do not count here.
create table daybook.view_decision_rate (
    minute         timestamptz not null,
    decisions      bigint      not null,
    first_position bigint      not null,
    scope          text        not null,
    queue          text        not null,
    type           text        not null,
    outcome        text        not null,
    constraint view_decision_rate_pkey primary key (minute, scope, queue, type, outcome)
)
-- The rows of the current minute are updated with each batch: with room on their page no index is touched.
with (fillfactor = 50);

grant select, insert, update, delete on daybook.view_decision_rate to daybook_relay;
grant select on daybook.view_decision_rate to daybook_operator;

comment on table daybook.view_decision_rate is
    'Decisions per minute, scope, queue, type and outcome. Replayed and coalesced requests leave no event: not counted.';
comment on column daybook.view_decision_rate.minute is 'Start of the minute in which it was decided, by the ledger''s clock.';
comment on column daybook.view_decision_rate.decisions is 'How many.';
comment on column daybook.view_decision_rate.first_position is 'Position of the first event counted in this row.';
comment on column daybook.view_decision_rate.scope is 'Scope of the key; the empty text for requests without a key.';
comment on column daybook.view_decision_rate.outcome is 'accepted, replaced, non_replaceable or conflict_rejected.';
