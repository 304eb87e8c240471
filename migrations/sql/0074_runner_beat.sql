set local role daybook_owner;

-- When each runner was last heard of: a consumer group, a projection or a relay, by the name of its cursor. Several
-- processes that run the same one share a row, because it is alive as long as any of them is. One that was ended on purpose
-- stays here until somebody forgets it: nobody runs it, and that must not look like health.
create table daybook.runner_beat (
    name    text        not null,
    kind    text        not null,
    host    text        not null,
    pid     integer     not null,
    beat_at timestamptz not null default clock_timestamp(),
    constraint runner_beat_pkey primary key (name),
    constraint runner_beat_kind_known check (kind in ('subscriber', 'projection', 'relay'))
)
-- Each beat is a new version of the row on the same page, with no index to touch.
with (fillfactor = 20);

comment on table daybook.runner_beat is 'When each consumer group, projection and relay was last heard of, and where.';
grant select, insert, update, delete on daybook.runner_beat to daybook_relay;
grant select, delete on daybook.runner_beat to daybook_operator;
