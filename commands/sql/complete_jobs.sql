select daybook.complete_jobs($1::uuid[], $2::bigint[])
