-- A refusal whose transaction was rolled back, from the error alone.
select daybook.record_rejection(
    $1::bytea, $2::uuid, $3::text, $4::text, $5::text, $6::text, $7::text[], $8::bytea, $9::text
)
