-- Forgets a runner that is not to run any more.
delete from daybook.runner_beat as b
where b.name = $1::text
returning b.name
