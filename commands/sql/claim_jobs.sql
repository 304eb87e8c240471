-- The best jobs of a queue, under a lease; each column is an array with an element for each job.
select c.job_ids, c.fences, c.attempts, c.attempt_budgets, c.types, c.payloads, c.priorities, c.concurrency_keys, c.tags,
    c.deadlines, c.execution_timeout_ms, c.lease_expires_at
from daybook.claim_jobs($1::text, $2::text, $3::integer, $4::bigint) as c
