set local role daybook_owner;

-- The bodies of the events about requests and keys, version 1. One text for single and batch, so that they cannot
-- drift apart. Members are only ever added, and only optional ones.

create function daybook.accepted_body(
    p_job_id               uuid,
    p_type                 text,
    p_payload_bytes        integer,
    p_queue                text,
    p_priority             integer,
    p_concurrency_key      text,
    p_tags                 text[],
    p_attempt_budget       integer,
    p_retry_kind           text,
    p_retry_initial_ms     bigint,
    p_retry_max_ms         bigint,
    p_run_at               timestamptz,
    p_deadline             timestamptz,
    p_execution_timeout_ms bigint,
    p_mode                 text,
    p_scope                text,
    p_key_hash             bytea,
    p_key_preview          text,
    p_window_ms            bigint,
    p_expires_at           timestamptz,
    p_request_digest       bytea,
    p_after_job_id         uuid,
    p_traceparent          text
)
returns json
language sql
stable
as $$
    select (
        '{"v":1,"job_id":"' || p_job_id::text || '"'
        || daybook.member('type', p_type)
        || daybook.member('queue', p_queue)
        || daybook.member('priority', p_priority::bigint)
        || daybook.member('attempt_budget', p_attempt_budget::bigint)
        || daybook.member('payload_bytes', p_payload_bytes::bigint)
        || ',"request_digest":"' || encode(p_request_digest, 'hex')
        || '","run_at":"' || daybook.instant(p_run_at) || '"'
        || daybook.member('concurrency_key', p_concurrency_key)
        || coalesce(',"tags":' || to_json(p_tags)::text, '')
        || coalesce(',"retry_policy":{"kind":"' || p_retry_kind || '","initial_ms":' || p_retry_initial_ms::text
            || ',"max_ms":' || p_retry_max_ms::text || '}', '')
        || coalesce(',"deadline":"' || daybook.instant(p_deadline) || '"', '')
        || daybook.member('execution_timeout_ms', p_execution_timeout_ms)
        || coalesce(',"mode":"' || p_mode || '"'
            || daybook.member('scope', p_scope)
            || ',"key_digest":"' || daybook.key_digest(p_key_hash) || '"'
            || daybook.member('key_preview', p_key_preview)
            || daybook.member('window_ms', p_window_ms)
            || ',"expires_at":"' || daybook.instant(p_expires_at) || '"', '')
        || daybook.member('after_job_id', p_after_job_id::text)
        || daybook.member('traceparent', p_traceparent)
        || '}'
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
