package main

// mutation is one small break.
type mutation struct {
	name string
	// rule is what is broken, in the words of DESIGN §4 or §6.
	rule string
	// version of the migration that has the function.
	version int
	// before is in that migration exactly once.
	before, after string
	// pkg and run are the tests that should notice.
	pkg, run string
}

const (
	jobs   = "./tests/jobs"
	ledger = "./tests/ledger"
)

func mutations() []mutation {
	return []mutation{
		{
			name: "digest decides", rule: "a digest never decides that two equal requests differ", version: 16,
			before: "            v_fields := v_owner.fields;\n",
			after:  "            v_fields := coalesce(v_owner.fields, array['payload']);\n",
			pkg:    jobs, run: "TestDigestOfAnotherVersion",
		},
		{
			name: "mode ignored", rule: "another mode is a conflict that names the mode", version: 14,
			before: "('mode', (p_binding).mode is distinct from p_mode)",
			after:  "('mode', false)",
			pkg:    jobs, run: "TestPairs",
		},
		{
			name: "window edge open, single", rule: "at exactly expires_at the key is free", version: 16,
			before: "and v_binding.expires_at > daybook.clock()\n            then",
			after:  "and v_binding.expires_at >= daybook.clock()\n            then",
			pkg:    jobs, run: "TestThrottleWindow",
		},
		{
			name: "window edge open, batch", rule: "at exactly expires_at the key is free", version: 17,
			before: "b.expires_at > v_now",
			after:  "b.expires_at >= v_now",
			pkg:    jobs, run: "TestThrottleWindow",
		},
		{
			name: "clock before the lock, replacement", rule: "lock, then read the clock", version: 16,
			before: "if not found or v_owner.expires_at <= v_now then",
			after:  "if not found then",
			pkg:    jobs, run: "TestClockIsReadAfterTheLock|TestWindowEndsDuringTheWait",
		},
		{
			name: "clock before the lock, debounce", rule: "lock, then read the clock", version: 51,
			before: "v_now := daybook.clock();\n    v_live :=",
			after:  "v_now := coalesce(v_now, daybook.clock());\n    v_live :=",
			pkg:    jobs, run: "TestClockIsReadAfterTheLock|TestWindowEndsDuringTheWait",
		},
		{
			name: "clock before the lock, conflict", rule: "lock, then read the clock", version: 16,
			before: "continue when not found or v_binding.expires_at <= daybook.clock();",
			after:  "continue when not found;",
			pkg:    jobs, run: "TestClockIsReadAfterTheLock",
		},
		{
			name: "old clock after a wait", rule: "who waited three seconds gets her window from after the wait", version: 16,
			before: "where c.at - v_now <= interval '10 milliseconds'",
			after:  "where true",
			pkg:    jobs, run: "TestClockIsReadAfterTheLock",
		},
		{
			name: "old clock after a wait, rotation", rule: "who waited three seconds gets her window from after the wait", version: 16,
			before: "exit when daybook.clock() - v_now <= interval '10 milliseconds';",
			after:  "exit;",
			pkg:    jobs, run: "TestClockIsReadAfterTheLock",
		},
		{
			name: "old clock after a wait, batch", rule: "who waited three seconds gets her window from after the wait", version: 17,
			before: "if daybook.clock() - v_now > c_claim_age then",
			after:  "if false then",
			pkg:    jobs, run: "TestClockIsReadAfterTheLock",
		},
		{
			name: "claim without a second look", rule: "the unique key arbitrates; who loses reads again", version: 16,
			before: "and b.job_id = v_job_id;\n            continue when not found;",
			after:  "and b.job_id = v_job_id;",
			pkg:    jobs, run: "TestWaitForAnAcceptance",
		},
		{
			name: "refusal recorded again", rule: "the same refusal is recorded once", version: 15,
			before: "values (p_key_hash, p_request_digest, p_reason, v_now)",
			after:  "values (p_key_hash, p_request_digest, p_reason || gen_random_uuid(), v_now)",
			pkg:    jobs, run: "TestRejectionIsRecordedOnce|TestModel",
		},
		{
			name: "refusals outlive their binding", rule: "a refusal goes with its binding", version: 50,
			before: "where r.key_hash = (p_binding).key_hash;",
			after:  "where r.key_hash = (p_binding).key_hash and false;",
			pkg:    jobs, run: "TestRejectionGoesWithItsBinding|TestModel",
		},
		{
			name: "begun job replaced", rule: "a job that has begun an attempt is never altered", version: 51,
			before: "v_job.state not in ('scheduled', 'ready') or v_job.attempt > 0 then\n        if v_live",
			after:  "v_job.state not in ('scheduled', 'ready') then\n        if v_live",
			pkg:    jobs, run: "TestBegunJobIsNotReplaceable|TestModel",
		},
		{
			name: "max wait from now", rule: "max wait is measured from first acceptance", version: 16,
			before: "v_owner.bound_at + p_max_wait_ms",
			after:  "v_now + p_max_wait_ms",
			pkg:    jobs, run: "TestMaxWait|TestModel",
		},
		{
			name: "refused, but the key is gone", rule: "what is refused as invalid changes nothing", version: 51,
			before: "        if p_deadline <= greatest(v_now, coalesce(",
			after:  "        if false and p_deadline <= greatest(v_now, coalesce(",
			pkg:    jobs, run: "TestPastDeadlineIsRefused|TestModel",
		},
		{
			name: "window survives run-now", rule: "run-now releases the window", version: 56,
			before: "    if v_binding.key_hash is not null then",
			after:  "    if false then",
			pkg:    jobs, run: "TestRunNowReleasesTheWindow|TestModel",
		},
		{
			name: "follow-up does not wait", rule: "a follow-up runs after its predecessor", version: 54,
			before: "and (j.after_job_id is null or not exists (",
			after:  "and (true or not exists (",
			pkg:    jobs, run: "TestFollowUp|TestModel",
		},
		{
			name: "begun job locked", rule: "one lock order on every path", version: 51,
			before: "        if v_job.state in ('scheduled', 'ready') and v_job.attempt = 0 then\n            begin",
			after:  "        if true then\n            begin",
			pkg:    jobs, run: "TestBegunJobIsNotLocked",
		},
		{
			name: "stale fence completes", rule: "a stale fence changes nothing", version: 55,
			before: "            and j.fence = i.fence\n            and j.state = 'active'\n        returning j.*",
			after:  "            and j.state = 'active'\n        returning j.*",
			pkg:    jobs, run: "TestStaleFence|TestModel",
		},
		{
			name: "stale fence fails", rule: "a stale fence changes nothing", version: 55,
			before: "        and j.fence = p_fence\n",
			after:  "",
			pkg:    jobs, run: "TestStaleFence|TestModel",
		},
		{
			name: "transition without its event", rule: "every transition appends its event", version: 55,
			before: "'job.succeeded', daybook.job_body(d, null)\n        from done as d",
			after:  "'job.succeeded', daybook.job_body(d, null)\n        from done as d\n        where d.attempt > 1",
			pkg:    jobs, run: "TestTransitionsAreTransactional|TestModel",
		},
		{
			name: "purge takes what came later", rule: "jobs accepted after the purge began survive", version: 57,
			before: "                and j.state = 'scheduled'\n                and j.accepted_at <= v_purge.requested_at",
			after:  "                and j.state = 'scheduled'",
			pkg:    jobs, run: "TestPurgeSparesLaterJobs",
		},
		{
			name: "expiry without an event", rule: "maintenance appends binding.expired", version: 58,
			before: "::daybook.binding, null, null)\n    from gone as g",
			after:  "::daybook.binding, null, null)\n    from gone as g\n    where g.mode <> 'throttle'",
			pkg:    jobs, run: "TestMaintainAudits|TestModel",
		},
		{
			name: "expiry of a waiting debounce", rule: "a debounce binding whose job waits for its turn is kept", version: 58,
			before: "and (b.mode <> 'debounce' or not exists (",
			after:  "and (true or not exists (",
			pkg:    jobs, run: "TestWindowElapsedPending|TestWaitingDebouncesHideNothing|TestModel",
		},
		{
			name: "prune what a live key owns", rule: "a live binding keeps its job", version: 58,
			before: "continue when v_binding.expires_at > v_now;",
			after:  "",
			pkg:    jobs, run: "TestPinnedJobsHideNothing|TestThrottleCoalescesInEachState|TestModel",
		},
		{
			name: "maintenance waits", rule: "maintenance passes over what somebody holds", version: 58,
			before: "        order by b.expires_at\n        limit coalesce(p_limit, 0)\n        for update skip locked",
			after:  "        order by b.expires_at\n        limit coalesce(p_limit, 0)\n        for update",
			pkg:    jobs, run: "TestMaintainPassesOver",
		},
		{
			name: "redrive over an owned key", rule: "a redrive whose key is owned by another job is a conflict", version: 59,
			before: "if v_binding.job_id <> p_source_job_id and v_binding.expires_at > v_now then",
			after:  "if false then",
			pkg:    jobs, run: "TestRedriveRefused|TestModel",
		},
		{
			name: "gap stamped with xmax", rule: "a gap's stamp is an xid younger than the snapshot", version: 18,
			before: "v_stamp := pg_current_xact_id();",
			after:  "v_stamp := pg_snapshot_xmax(v_snapshot);",
			pkg:    ledger, run: "TestSequenceXIDTakenEarlyIDDrawnLate/the_stamp_is_an_xid",
		},
	}
}
