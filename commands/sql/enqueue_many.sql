-- A batch, one row: each column is an array with an element for each request. See enqueue.sql for the form.
select (d.answer).job_ids, (d.answer).outcomes, (d.answer).reasons, (d.answer).bound_ats, (d.answer).expires_ats,
    (d.answer).details
from (
    select daybook.enqueue_many(
        $1::boolean, $2::text[], $3::text[], $4::text[], $5::integer[], $6::text[], $7::text[], $8::integer[],
        $9::text[], $10::bigint[], $11::bigint[], $12::timestamptz[], $13::timestamptz[], $14::bigint[], $15::text[],
        $16::text[], $17::bytea[], $18::bytea[], $19::text[], $20::bigint[], $21::bigint[], $22::text[], $23::boolean[],
        $24::bytea[], $25::text, $26::text[], $27::text[]
    ) as answer
    offset 0
) as d
