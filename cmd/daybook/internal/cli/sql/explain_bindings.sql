-- What the hashes of a key are bound to.
select
    b.key_digest,
    b.key_preview,
    b.scope,
    b.mode,
    b.job_id,
    b.job_state,
    b.request_digest,
    b.bound_at,
    b.expires_at,
    b.live,
    b.alias
from daybook.explain_bindings($1::bytea[]) as b
