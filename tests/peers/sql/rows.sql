-- How many rows each of the tables that a decision may write holds.
select
    (select count(*) from daybook.binding) as binding,
    (select count(*) from daybook.job) as job,
    (select count(*) from daybook.event) as event,
    (select count(*) from daybook.rejection) as rejection
