select daybook.expire_bindings($1::integer)
