set local role daybook_owner;

-- Appends enqueue.conflict_rejected or enqueue.non_replaceable once for each (binding, request, reason), however often and by whichever
-- way the refused request comes back: from the refusal itself, or afterwards from the error alone.
-- True where this call appended it. False: known already, or the key has meanwhile another owner.
create function daybook.record_rejection(
    p_key_hash       bytea,
    p_job_id         uuid,
    p_reason         text,
    p_type           text,
    p_queue          text,
    p_mode           text,
    p_fields         text[],
    p_request_digest bytea,
    p_traceparent    text
)
returns boolean
language plpgsql
volatile
security definer
set search_path = pg_catalog, daybook, pg_temp
as $$
declare
    v_binding daybook.binding;
    v_now     timestamptz;
    v_xid     xid8;
begin
    -- A retried refusal is known already: it must write nothing, so it must not lock either.
    perform
    from daybook.rejection as r
    where r.key_hash = p_key_hash
        and r.request_digest = p_request_digest
        and r.reason = p_reason;
    if found then
        return false;
    end if;

    -- Binding before event. The lock keeps the owner of the key while its refusal is recorded, and
    -- orders this event among the others of the key.
    select b.*
    into v_binding
    from daybook.binding as b
    where b.key_hash = p_key_hash
        and b.job_id = p_job_id
    for no key update;
    if not found then
        return false;
    end if;

    v_now := daybook.clock();
    insert into daybook.rejection (key_hash, request_digest, reason, recorded_at)
    values (p_key_hash, p_request_digest, p_reason, v_now)
    on conflict on constraint rejection_pkey do nothing;
    if not found then
        return false;
    end if;

    -- The xid is there before the id is drawn: see daybook.sequence.
    v_xid := pg_current_xact_id();
    insert into daybook.event (recorded_at, job_id, key_hash, kind, scope, key_preview, body)
    values (
        v_now, v_binding.job_id, v_binding.key_hash,
        case p_reason when 'conflict' then 'enqueue.conflict_rejected' else 'enqueue.non_replaceable' end,
        v_binding.scope, v_binding.key_preview,
        daybook.rejected_body(v_binding, p_type, p_queue, p_mode, p_reason, p_fields, p_request_digest, p_traceparent)
    );
    return true;
end
$$;

grant execute on function daybook.record_rejection to daybook_app;
