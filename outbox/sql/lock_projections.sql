-- Takes for this transaction those of the projections that nobody else is folding, and answers at once which they are:
-- work need not be done twice. It saves work only; what keeps the counts right is the compare-and-set of the cursors.
select p.name
from unnest($1::text[]) as p (name)
where pg_try_advisory_xact_lock(hashtextextended('daybook.projection ' || p.name, 0))
