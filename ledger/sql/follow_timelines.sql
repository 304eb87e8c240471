-- Whether readers go on by themselves after the promotion of a replica.
select daybook.follow_timelines($1::boolean)
