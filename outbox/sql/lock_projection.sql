-- Takes the projection for this transaction, or answers false at once: another runner is folding, and its work need
-- not be done twice. It saves work only; what keeps the counts right is the compare-and-set of the cursor.
select pg_try_advisory_xact_lock(hashtextextended('daybook.projection ' || $1::text, 0)) as locked
