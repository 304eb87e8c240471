select daybook.expire_leases($1::integer)
