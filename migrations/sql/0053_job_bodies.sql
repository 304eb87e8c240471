set local role daybook_owner;

-- The body of every event about a job's life, version 1: which job, which attempt, and what is special to the kind as
-- members already rendered.
create function daybook.job_body(p_job daybook.job, p_members text)
returns json
language sql
stable
as $$
    select (
        '{"v":1,"job_id":"' || (p_job).job_id::text || '"'
        || daybook.member('type', (p_job).type)
        || daybook.member('queue', (p_job).queue)
        || daybook.member('attempt', (p_job).attempt::bigint)
        || daybook.member('attempt_budget', (p_job).attempt_budget::bigint)
        || daybook.member('key_digest', daybook.key_digest((p_job).key_hash))
        || coalesce(p_members, '')
        || '}'
    )::json
$$;

-- Appends one event about a job. The caller holds the lock on the job's row.
create function daybook.append_job_event(p_job daybook.job, p_kind text, p_now timestamptz, p_members text)
returns void
language plpgsql
volatile
as $$
declare
    v_xid xid8;
begin
    -- The xid is there before the id is drawn: see daybook.sequence.
    v_xid := pg_current_xact_id();
    insert into daybook.event (recorded_at, job_id, key_hash, kind, body)
    values (p_now, (p_job).job_id, (p_job).key_hash, p_kind, daybook.job_body(p_job, p_members));
end
$$;

-- Whether an actor's name and a reason keep their bounds; the name of the first that does not, or null.
create function daybook.invalid_act(p_actor text, p_reason text)
returns text
language sql
immutable
as $$
    select case
        when coalesce(octet_length(p_actor), 0) not between 1 and 200 then 'actor'
        when coalesce(octet_length(p_reason), 0) not between 1 and 1000 then 'reason'
    end
$$;
