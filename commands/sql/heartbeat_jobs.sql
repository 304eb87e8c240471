select h.held, h.lease_expires_at
from daybook.heartbeat_jobs($1::uuid[], $2::bigint[], $3::bigint) as h
