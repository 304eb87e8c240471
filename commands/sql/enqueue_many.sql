-- A batch, one row: each column is an array with an element for each request.
select d.job_ids, d.outcomes, d.reasons, d.bound_ats, d.expires_ats, d.details
from daybook.enqueue_many(
    $1::boolean, $2::text[], $3::text[], $4::text[], $5::integer[], $6::text[], $7::text[], $8::integer[], $9::text[],
    $10::bigint[], $11::bigint[], $12::timestamptz[], $13::timestamptz[], $14::bigint[], $15::text[], $16::text[],
    $17::bytea[], $18::bytea[], $19::text[], $20::bigint[], $21::bigint[], $22::text[], $23::boolean[], $24::bytea[],
    $25::text, $26::text[]
) as d
