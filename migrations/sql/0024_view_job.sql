set local role daybook_owner;

-- What became of each job, also of those that are pruned or purged. A job that waits for its time and one whose time
-- has come are both waiting: that a time has come is no event. So whoever reads compares next_run_at with the clock.
create table daybook.view_job (
    job_id         uuid        not null,
    source_job_id  uuid,
    accepted_at    timestamptz,
    started_at     timestamptz,
    finished_at    timestamptz,
    next_run_at    timestamptz,
    first_position bigint      not null,
    last_position  bigint      not null,
    attempt        smallint    not null,
    attempt_budget smallint    not null,
    state          text        not null,
    queue          text        not null,
    type           text        not null,
    key_digest     text collate "C",
    scope          text,
    key_preview    text,
    constraint view_job_pkey primary key (job_id),
    constraint view_job_state_known check (state in ('waiting', 'active', 'succeeded', 'failed', 'cancelled', 'purged'))
)
with (fillfactor = 85);

-- Newest jobs first: of all, of one state, of one queue, of one key. A state changes some three times in a job's life,
-- and then every index gets an entry: so there is one index with it and no more.
create index view_job_first_position
    on daybook.view_job (first_position);

create index view_job_state
    on daybook.view_job (state, first_position);

create index view_job_queue
    on daybook.view_job (queue, first_position);

create index view_job_key
    on daybook.view_job (key_digest, first_position)
    where key_digest is not null;

grant select, insert, update, delete on daybook.view_job to daybook_relay;
grant select on daybook.view_job to daybook_operator;

comment on table daybook.view_job is 'One row per job: where it is and when it came there. Jobs that are pruned or purged stay here.';
comment on column daybook.view_job.source_job_id is 'The failed job that this one was made from, where it was redriven.';
comment on column daybook.view_job.accepted_at is 'When the job was accepted, or redriven from another.';
comment on column daybook.view_job.started_at is 'When its last attempt began; null before the first.';
comment on column daybook.view_job.finished_at is 'When it succeeded, failed for good, was cancelled or purged.';
comment on column daybook.view_job.next_run_at is 'When it may run: null unless it is waiting.';
comment on column daybook.view_job.first_position is 'Position of the first event of this job.';
comment on column daybook.view_job.last_position is 'Position of the last event of this job that changed it.';
comment on column daybook.view_job.attempt is 'How many attempts have begun.';
comment on column daybook.view_job.attempt_budget is 'How many attempts there may be.';
comment on column daybook.view_job.state is
    'waiting, active, succeeded, failed, cancelled or purged. A waiting job is scheduled before next_run_at and ready from then on.';
comment on column daybook.view_job.key_digest is
    'What people see of the hash of the key it was accepted under; null where it had none.';
comment on column daybook.view_job.scope is 'Scope of that key; null where it had none.';
comment on column daybook.view_job.key_preview is 'What people see of that key; null where it had none.';
