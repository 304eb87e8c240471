-- One request, one row. The function is called in a select list, which spares the set that a call under FROM would be
-- kept in; offset 0 keeps the call one, where six columns are taken from its answer.
select (d.answer).job_id, (d.answer).outcome, (d.answer).reason, (d.answer).bound_at, (d.answer).expires_at,
    (d.answer).detail::text
from (
    select daybook.enqueue(
        $1::text, $2::text, $3::text, $4::integer, $5::text, $6::text[], $7::integer, $8::text, $9::bigint, $10::bigint,
        $11::timestamptz, $12::timestamptz, $13::bigint, $14::text, $15::text, $16::bytea, $17::bytea, $18::text,
        $19::bigint, $20::bigint, $21::text, $22::boolean, $23::bytea, $24::text, $25::text, $26::text
    ) as answer
    offset 0
) as d
