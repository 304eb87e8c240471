-- The position after which a reader begins who wants what was decided at or after an instant.
select daybook.position_before($1::timestamptz) as position
