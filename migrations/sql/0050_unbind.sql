set local role daybook_owner;

-- Takes a binding away with its aliases and its rejections, and appends why: binding.expired, or binding.released
-- with a reason. The caller holds the lock on the row of the binding; a binding that is gone is left gone.
create function daybook.unbind(
    p_binding daybook.binding,
    p_kind    text,
    p_reason  text,
    p_actor   text,
    p_now     timestamptz
)
returns void
language plpgsql
volatile
as $$
declare
    v_hashes constant bytea[] := daybook.key_ring((p_binding).key_hash, (p_binding).other_hashes);
    v_xid             xid8;
begin
    delete from daybook.binding as b
    where b.key_hash = any (v_hashes)
        and (b.key_hash = (p_binding).key_hash or b.alias_of = (p_binding).key_hash);
    if not found then
        return;
    end if;

    delete from daybook.rejection as r
    where r.key_hash = (p_binding).key_hash;

    -- The xid is there before the id is drawn: see daybook.sequence.
    v_xid := pg_current_xact_id();
    insert into daybook.event (recorded_at, job_id, key_hash, kind, scope, key_preview, body)
    values (
        p_now, (p_binding).job_id, (p_binding).key_hash, p_kind, (p_binding).scope, (p_binding).key_preview,
        daybook.unbound_body(p_binding, p_reason, p_actor)
    );
end
$$;
