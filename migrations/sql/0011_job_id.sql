set local role daybook_owner;

-- A UUIDv7 with the ledger's clock in its first 48 bits: job ids ascend, so that the indexes of a large
-- job table are only ever touched at their right edge. PostgreSQL has such a function from 18 on.
--
-- The other 20 digits are random, with version and variant in their places. Whoever has drawn them already passes them,
-- as the Go package does: what is drawn and put together here takes as long as looking up a key.
create function daybook.new_job_id(p_at timestamptz, p_tail text)
returns uuid
language sql
stable
as $$
    select (lpad(to_hex((date_part('epoch', p_at) * 1000)::bigint), 12, '0') || p_tail)::uuid
$$;

create function daybook.job_id_tail()
returns text
language sql
volatile
as $$
    select '7' || right(encode(uuid_send(gen_random_uuid()), 'hex'), 19)
$$;
