-- One request, one row.
select d.job_id, d.outcome, d.reason, d.bound_at, d.expires_at, d.detail::text
from daybook.enqueue(
    $1::text, $2::text, $3::text, $4::integer, $5::text, $6::text[], $7::integer, $8::text, $9::bigint, $10::bigint,
    $11::timestamptz, $12::timestamptz, $13::bigint, $14::text, $15::text, $16::bytea, $17::bytea, $18::text, $19::bigint,
    $20::bigint, $21::text, $22::boolean, $23::bytea, $24::text, $25::text
) as d
