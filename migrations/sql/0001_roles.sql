-- The four roles of the ledger. They belong to the cluster, not to this database, so another
-- database may have made them already, or may be making them at this very moment.
do $$
declare
    v_role text;
    v_may  text;
begin
    foreach v_role in array array['daybook_owner', 'daybook_app', 'daybook_relay', 'daybook_operator'] loop
        begin
            execute format('create role %I nologin', v_role);
        exception
            when duplicate_object or unique_violation then
                null;
        end;
    end loop;
    -- Whoever migrates creates everything as daybook_owner, and so must be able to become it.
    -- A superuser can; anybody else needs to be a member, and may make herself one only where
    -- she has the right to grant the role. From PostgreSQL 16 on, whoever creates a role is a member of it
    -- that may not become it.
    v_may := case when current_setting('server_version_num')::integer >= 160000 then 'SET' else 'MEMBER' end;
    if not pg_has_role(current_user, 'daybook_owner', v_may) then
        execute format('grant daybook_owner to %I', current_user);
    end if;
end
$$;
