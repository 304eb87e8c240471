set local role daybook_owner;

-- The ledger itself. Rows are appended by the ledger's own functions and never altered.
--
-- The identity has cache 1: with a larger cache a session would hold ids that are neither visible
-- nor belong to any transaction, and sequencing (see daybook.sequence) could not tell what may still appear.
create table daybook.event (
    event_id    bigint      generated always as identity (cache 1),
    recorded_at timestamptz not null,
    job_id      uuid,
    key_hash    bytea,
    kind        text        not null,
    scope       text,
    key_preview text,
    -- json, not jsonb: leaf hashes are taken over the stored bytes, and jsonb renders them anew.
    body        json        not null,
    constraint event_pkey primary key (event_id)
);

-- Who asks for one key's or one job's timeline is an operator, seldom; who inserts is every enqueue.
-- A bloom summary per 32 pages costs the insert nothing and lets the seldom question skip almost all pages. It is
-- made for as many events as 32 pages hold of the smallest: a fuller one would let pages through in vain.
create index event_timeline
    on daybook.event
    using brin (
        key_hash bytea_bloom_ops (n_distinct_per_range = 1500),
        job_id uuid_bloom_ops (n_distinct_per_range = 1500)
    )
    with (pages_per_range = 32, autosummarize = off);
-- An index made on an empty table begins with a summary of the first range, which each insert there would make and compress
-- anew: more work than all the rest of an enqueue. Without one the first range is like every other, summarised once full.
select brin_desummarize_range('daybook.event_timeline', 0);

-- Place in the ledger: dense, assigned after commit.
create table daybook.ledger_order (
    position     bigint      not null,
    event_id     bigint      not null,
    sequenced_at timestamptz not null,
    leaf_hash    bytea       not null,
    constraint ledger_order_pkey primary key (position),
    constraint ledger_order_event unique (event_id),
    constraint ledger_order_position_positive check (position > 0)
);

comment on table daybook.event is 'The immutable ledger: each decision or transition that changed something.';
comment on table daybook.ledger_order is 'The order of the events: dense positions, given after commit.';
