set local role daybook_owner;

-- The bodies of the events about requests and keys, version 1. One text for single and batch, so that they cannot
-- drift apart. Members are only ever added, and only optional ones.

-- What a request asked for, as members of a JSON object. The Go package commands renders the same and sends it along,
-- because here it would take as long as everything else together; this is for whoever calls the functions directly.
-- Both are held together by a test, and daybook verify compares events with jobs.
create function daybook.request_members(
    p_type                 text,
    p_queue                text,
    p_priority             integer,
    p_concurrency_key      text,
    p_tags                 text[],
    p_attempt_budget       integer,
    p_payload_bytes        integer,
    p_retry_kind           text,
    p_retry_initial_ms     bigint,
    p_retry_max_ms         bigint,
    p_deadline             timestamptz,
    p_execution_timeout_ms bigint,
    p_mode                 text,
    p_scope                text,
    p_key_hash             bytea,
    p_key_preview          text,
    p_window_ms            bigint,
    p_request_digest       bytea,
    p_traceparent          text
)
returns text
language plpgsql
stable
as $$
begin
    return concat(
        '"type":', to_json(p_type), ',"queue":', to_json(p_queue), ',"priority":', p_priority,
        ',"attempt_budget":', p_attempt_budget, ',"payload_bytes":', p_payload_bytes,
        ',"request_digest":"', encode(p_request_digest, 'hex'), '"',
        ',"concurrency_key":' || to_json(p_concurrency_key)::text,
        ',"tags":' || to_json(p_tags)::text,
        ',"retry_policy":{"kind":"' || p_retry_kind || '","initial_ms":' || p_retry_initial_ms
            || ',"max_ms":' || p_retry_max_ms || '}',
        ',"deadline":"' || daybook.instant(p_deadline) || '"',
        ',"execution_timeout_ms":' || p_execution_timeout_ms,
        ',"mode":"' || p_mode || '","scope":' || to_json(p_scope)::text || ',"key_digest":"'
            || daybook.key_digest(p_key_hash) || '","key_preview":' || to_json(p_key_preview)::text
            || ',"window_ms":' || p_window_ms,
        ',"traceparent":' || to_json(p_traceparent)::text
    );
end
$$;

-- What PostgreSQL decided comes after what was asked for: of a member that is there twice the last one counts.
create function daybook.accepted_body(
    p_job_id       uuid,
    p_request      text,
    p_run_at       timestamptz,
    p_expires_at   timestamptz,
    p_after_job_id uuid
)
returns json
language sql
stable
as $$
    select (
        '{"v":1,' || p_request || ',"job_id":"' || p_job_id || '","run_at":"' || daybook.instant(p_run_at)
        || coalesce('","expires_at":"' || daybook.instant(p_expires_at), '')
        || coalesce('","after_job_id":"' || p_after_job_id, '')
        || '"}'
    )::json
$$;

-- Of enqueue.replaced: what the job is now, and what it was.
create function daybook.replaced_body(
    p_accepted                json,
    p_replaced                integer,
    p_previous_request_digest bytea,
    p_previous_run_at         timestamptz
)
returns json
language sql
stable
as $$
    select (
        rtrim(p_accepted::text, '}')
        || daybook.member('replaced', p_replaced::bigint)
        || ',"previous_request_digest":"' || encode(p_previous_request_digest, 'hex')
        || '","previous_run_at":"' || daybook.instant(p_previous_run_at) || '"}'
    )::json
$$;

-- Of enqueue.conflict_rejected, with the fields that differ, and of enqueue.non_replaceable, with the reason.
create function daybook.rejected_body(
    p_binding        daybook.binding,
    p_type           text,
    p_queue          text,
    p_mode           text,
    p_reason         text,
    p_fields         text[],
    p_request_digest bytea,
    p_traceparent    text
)
returns json
language sql
stable
as $$
    select (
        '{"v":1,"job_id":"' || (p_binding).job_id::text || '"'
        || daybook.member('type', p_type)
        || daybook.member('queue', p_queue)
        || daybook.member('mode', p_mode)
        || daybook.member('reason', nullif(p_reason, 'conflict'))
        || coalesce(',"fields":' || to_json(p_fields)::text, '')
        || ',"request_digest":"' || encode(p_request_digest, 'hex') || '"'
        || daybook.member('scope', (p_binding).scope)
        || ',"key_digest":"' || daybook.key_digest((p_binding).key_hash) || '"'
        || daybook.member('key_preview', (p_binding).key_preview)
        || daybook.member('existing_mode', (p_binding).mode)
        || ',"existing_request_digest":"' || encode((p_binding).request_digest, 'hex')
        || '","bound_at":"' || daybook.instant((p_binding).bound_at)
        || '","expires_at":"' || daybook.instant((p_binding).expires_at) || '"'
        || daybook.member('traceparent', p_traceparent)
        || '}'
    )::json
$$;

-- Of binding.expired, and of binding.released, which also has a reason and where a person did it an actor.
create function daybook.unbound_body(p_binding daybook.binding, p_reason text, p_actor text)
returns json
language sql
stable
as $$
    select (
        '{"v":1,"job_id":"' || (p_binding).job_id::text || '"'
        || daybook.member('mode', (p_binding).mode)
        || daybook.member('scope', (p_binding).scope)
        || ',"key_digest":"' || daybook.key_digest((p_binding).key_hash) || '"'
        || daybook.member('key_preview', (p_binding).key_preview)
        || ',"bound_at":"' || daybook.instant((p_binding).bound_at)
        || '","expires_at":"' || daybook.instant((p_binding).expires_at) || '"'
        || daybook.member('reason', p_reason)
        || daybook.member('actor', p_actor)
        || '}'
    )::json
$$;
