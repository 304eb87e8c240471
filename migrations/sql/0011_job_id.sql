set local role daybook_owner;

-- A UUIDv7 with the ledger's clock in its first 48 bits: job ids ascend, so that the indexes of a large
-- job table are only ever touched at their right edge. PostgreSQL has such a function from 18 on.
create function daybook.new_job_id(p_at timestamptz)
returns uuid
language sql
volatile
as $$
    select encode(
        set_bit(
            set_bit(
                overlay(
                    uuid_send(gen_random_uuid())
                    placing substring(int8send((extract(epoch from p_at) * 1000)::bigint) from 3)
                    from 1 for 6
                ),
                52, 1
            ),
            53, 1
        ),
        'hex'
    )::uuid
$$;
