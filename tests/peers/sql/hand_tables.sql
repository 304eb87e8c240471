-- The tables of the hand-written SQL: Daybook's own three once more, with the same columns, constraints, indexes and
-- room on each page, so that whoever fills them writes the same rows.
create schema hand;

create table hand.binding (
    like daybook.binding including all
)
with (fillfactor = 85);

create table hand.job (
    like daybook.job including all
)
with (fillfactor = 90);

create table hand.event (
    like daybook.event including all
);
