set local role daybook_owner;

-- Small renderings used inside event bodies. None has a SET clause, so that PostgreSQL can inline them;
-- all are called with the search_path that the functions above them pin. Those that others may execute, also by
-- way of a view, have bodies whose names are bound when they are made: a view's reader brings her own search_path,
-- and a function of hers would be handed the whole hash.

-- An instant as RFC 3339 in UTC: the session's time zone never reaches the ledger.
create function daybook.instant(p_at timestamptz)
returns text
language sql
stable
return to_char(p_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"');

-- What people see of a key hash: its first twelve hex digits.
create function daybook.key_digest(p_key_hash bytea)
returns text
language sql
immutable
return left(encode(p_key_hash, 'hex'), 12);

grant execute on function daybook.instant(timestamptz), daybook.key_digest(bytea) to daybook_relay, daybook_operator;

-- One member of a JSON object, with its leading comma; the empty string where there is no value.
-- Concatenating text takes a third of the time of json_build_object with as many members.
--
-- Stable, since to_json is: a function that claims more than its body is not inlined, and then costs a hundred times
-- what it does.
create function daybook.member(p_name text, p_value text)
returns text
language sql
stable
as $$
    select coalesce(',"' || p_name || '":' || to_json(p_value)::text, '')
$$;

create function daybook.member(p_name text, p_value bigint)
returns text
language sql
immutable
as $$
    select coalesce(',"' || p_name || '":' || p_value::text, '')
$$;
