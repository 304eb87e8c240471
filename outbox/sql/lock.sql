-- Takes the consumer group for this transaction, or answers false at once.
--
-- An advisory lock and not a lock on the cursor's row: it takes no xid and writes nothing, so a transaction that
-- waits for a slow handler keeps neither vacuum nor the sequencer's gaps from moving on.
--
-- The settings end with the transaction. The plans below are index lookups whatever the statistics say. And a
-- server-side limit on idle transactions would end a slow page again and again; AckDeadline bounds it instead.
select
    set_config('jit', 'off', true) as jit,
    set_config('enable_seqscan', 'off', true) as seqscan,
    set_config('enable_bitmapscan', 'off', true) as bitmapscan,
    set_config('idle_in_transaction_session_timeout', '0', true) as idle_timeout,
    pg_try_advisory_xact_lock(hashtextextended('daybook.cursor ' || $1::text, 0)) as locked
