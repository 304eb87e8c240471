set local role daybook_owner;

-- How long a job waits after its attempt no. p_attempt has failed. Where it has no policy of its own: the fourth power
-- of the attempt in seconds, at most a day. Decorrelated jitter is drawn from the job and the attempt, so that the same
-- failure always gets the same delay, and a thousand jobs that fail together do not come back together.
create function daybook.retry_delay(
    p_kind       text,
    p_initial_ms bigint,
    p_max_ms     bigint,
    p_job_id     uuid,
    p_attempt    integer
)
returns interval
language plpgsql
immutable
as $$
declare
    v_ms double precision := p_initial_ms;
begin
    if p_kind is null then
        return least(power(p_attempt, 4), 86400) * interval '1 second';
    end if;
    if p_kind = 'fixed' then
        return p_initial_ms * interval '1 millisecond';
    end if;
    if p_kind = 'exponential' then
        -- Beyond 2^40 of the smallest delay every bound is reached.
        return least(p_initial_ms * power(2, least(p_attempt - 1, 40)), p_max_ms)::bigint * interval '1 millisecond';
    end if;
    for v_attempt in 1 .. p_attempt loop
        -- Between the initial delay and three times the last one.
        v_ms := least(
            p_initial_ms + (greatest(v_ms * 3, p_initial_ms) - p_initial_ms)
                * ((hashtextextended(p_job_id::text, v_attempt) >> 11 & 4503599627370495) / 4503599627370496.0),
            p_max_ms
        );
    end loop;
    return v_ms::bigint * interval '1 millisecond';
end
$$;
