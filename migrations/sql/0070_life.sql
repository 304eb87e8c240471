set local role daybook_owner;

-- By what a life of the ledger is recognised, besides the cluster it is in. A restore into a fresh cluster changes the
-- system identifier, one into another database of the same cluster the database, and a point-in-time restore or the promotion
-- of a replica the timeline.
--
-- Null until a reader opens its cursor, who fills them in: before that there is nobody who could be misled, so a database
-- may be copied as a template.
alter table daybook.meta
    add column timeline         bigint,
    add column database_oid     bigint,
    add column follow_timelines boolean not null default false;

comment on column daybook.meta.follow_timelines is
    'Set where replicas are synchronous: a promotion then loses nothing, and readers go on by themselves.';

-- The epochs that were begun after the first one.
create table daybook.epoch (
    epoch             bigint      not null,
    -- The last position given in the epochs before.
    position          bigint      not null,
    swept             bigint      not null,
    system_identifier bigint,
    timeline          bigint,
    database_oid      bigint,
    begun_by          text        not null default session_user,
    begun_at          timestamptz not null default clock_timestamp(),
    constraint epoch_pkey primary key (epoch)
);

comment on table daybook.epoch is 'When each epoch of the ledger was begun, behind which position, by whom, and in which cluster.';
grant select on daybook.epoch to daybook_relay, daybook_operator;

-- Where this database is now. A server that does not tell (some that are rented do not) leaves nulls, and what is
-- null is not compared.
create function daybook.found_life(
    out system_identifier bigint,
    out timeline          bigint,
    out database_oid      bigint
)
language plpgsql
stable
security definer
set search_path = pg_catalog, daybook, pg_temp
as $$
begin
    select d.oid::bigint
    into database_oid
    from pg_database as d
    where d.datname = current_database();

    begin
        select s.system_identifier
        into system_identifier
        from pg_control_system() as s;
        if pg_is_in_recovery() then
            select c.timeline_id
            into timeline
            from pg_control_checkpoint() as c;
        else
            -- The control file tells the new timeline only after the first checkpoint in it; WAL is written in it at once.
            timeline := ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint;
        end if;
    exception
        when insufficient_privilege or feature_not_supported or undefined_function then
            null;
    end;
end
$$;

-- The epoch, and whether the ledger still is where that epoch began. Every reader asks when it opens its cursor; the
-- first one ever fills in what is known of the place. Where they differ although the epoch is the same, nobody has
-- decided yet what the readers shall do: see daybook.begin_epoch.
create function daybook.check_life(
    out epoch                      bigint,
    out same                       boolean,
    out recorded_system_identifier bigint,
    out recorded_timeline          bigint,
    out recorded_database_oid      bigint,
    out system_identifier          bigint,
    out timeline                   bigint,
    out database_oid               bigint
)
language plpgsql
volatile
security definer
set search_path = pg_catalog, daybook, pg_temp
as $$
declare
    v_meta daybook.meta;
begin
    -- A replica that is about to be promoted, or a restore that is not complete. Sessions outlive the promotion, so whoever
    -- was let through here would go on in another life.
    if pg_is_in_recovery() then
        raise exception 'this server is in recovery: nobody reads the ledger here before it is promoted'
            using errcode = 'read_only_sql_transaction',
                  hint = 'Connect to the primary. Where this is to become it, wait.';
    end if;

    select f.system_identifier, f.timeline, f.database_oid
    into check_life.system_identifier, check_life.timeline, check_life.database_oid
    from daybook.found_life() as f;

    select m.*
    into v_meta
    from daybook.meta as m;
    epoch := v_meta.epoch;
    if v_meta.database_oid is null then
        update daybook.meta as m
        set system_identifier = check_life.system_identifier,
            timeline = check_life.timeline,
            database_oid = check_life.database_oid
        where m.database_oid is null;
        v_meta.system_identifier := check_life.system_identifier;
        v_meta.timeline := check_life.timeline;
    elsif v_meta.follow_timelines
        and v_meta.system_identifier = check_life.system_identifier
        and v_meta.database_oid = check_life.database_oid
        and v_meta.timeline < check_life.timeline
    then
        update daybook.meta as m
        set timeline = check_life.timeline
        where m.timeline < check_life.timeline;
        v_meta.timeline := check_life.timeline;
    end if;

    recorded_system_identifier := v_meta.system_identifier;
    recorded_timeline := v_meta.timeline;
    recorded_database_oid := coalesce(v_meta.database_oid, check_life.database_oid);
    same := coalesce(recorded_system_identifier = check_life.system_identifier, true)
        and coalesce(recorded_timeline = check_life.timeline, true)
        and coalesce(recorded_database_oid = check_life.database_oid, true);
end
$$;

grant execute on function daybook.found_life to daybook_relay, daybook_operator;
grant execute on function daybook.check_life to daybook_relay;
