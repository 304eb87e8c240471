set local role daybook_owner;

-- The ledger with the columns that Debezium's outbox event router expects. It has no triggers and no copy of anything;
-- events are never altered, so reading from the last position on misses none.
create view daybook.debezium_outbox as
select
    -- A UUIDv3 in the name space of the ledger. A message's ce-id is a UUIDv5 of the same name, and PostgreSQL by itself
    -- has no SHA-1 to make one. Whoever reads both ways recognises an event by its position.
    encode(
        set_byte(
            set_byte(h.digest, 6, (get_byte(h.digest, 6) & 15) | 48),
            8, (get_byte(h.digest, 8) & 63) | 128
        ),
        'hex'
    )::uuid as id,
    split_part(e.kind, '.', 1) as aggregatetype,
    -- Events of one key are in order, so it is what they are partitioned by; without a key, the job.
    coalesce(daybook.key_digest(e.key_hash), e.job_id::text, e.event_id::text) as aggregateid,
    e.kind as type,
    e.body as payload,
    e.recorded_at as timestamp,
    e.body ->> 'traceparent' as traceparent,
    o.position
from daybook.ledger_order as o
join daybook.event as e
    on e.event_id = o.event_id
cross join daybook.meta as m
cross join lateral (
    select decode(
        md5(
            uuid_send(m.ledger_id)
            || int8send(e.event_id)
            || int8send((extract(epoch from e.recorded_at) * 1000000)::bigint)
        ),
        'hex'
    ) as digest
) as h;

comment on view daybook.debezium_outbox is
    'The events in order, with the columns of Debezium''s outbox event router. Logical decoding shows tables and no views: '
    'read this one with a connector that polls (incrementing column: position), and run a subscriber, a projection or a '
    'relay beside it, because it shows what has been sequenced and does not sequence.';
comment on column daybook.debezium_outbox.id is 'Unique and the same whenever it is read. Not the ce-id of a message.';
comment on column daybook.debezium_outbox.aggregatetype is 'The kind''s first word: enqueue, binding or job.';
comment on column daybook.debezium_outbox.aggregateid is 'What the order is kept for: key digest, or without a key the job ID.';
comment on column daybook.debezium_outbox.type is 'The kind.';
comment on column daybook.debezium_outbox.payload is 'The body, with the bytes that were stored.';

grant select on daybook.debezium_outbox to daybook_relay;
