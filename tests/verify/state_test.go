package verify_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// cast is one job of each kind, by the part it plays.
type cast map[string]uuid.UUID

// perform brings every kind of binding and job about.
func perform(t testing.TB, db *pgtest.DB) cast {
	t.Helper()
	ctx := t.Context()
	keys, err := ledger.NewHMACKeys([]byte("0123456789abcdef-new"), []byte("0123456789abcdef-old"))
	if err != nil {
		t.Fatal(err)
	}
	queue := newQueue(t, db.Pool, ledger.Keys{})
	c := cast{}
	accept := func(part string, queue *commands.Queue, o commands.EnqueueOptions) {
		t.Helper()
		o.Type, o.Queue, o.Payload = "type", part, map[string]any{"part": part, "text": "é"}
		result, err := queue.Decide(ctx, o)
		if err != nil || result.Outcome != commands.OutcomeAccepted && result.Outcome != commands.OutcomeReplaced {
			t.Fatalf("%s: %+v, %v", part, result, err)
		}
		c[part] = result.JobID
	}
	idempotent := func(key string) commands.EnqueueOptions {
		return commands.EnqueueOptions{Idempotency: &commands.Idempotency{Key: ledger.NewKey(key)}}
	}
	claim := func(part string) commands.ClaimedJob {
		t.Helper()
		claimed, err := queue.ClaimJobs(ctx, commands.ClaimOptions{Queue: part, Worker: "worker", Limit: 1, Lease: time.Hour})
		if err != nil || len(claimed) != 1 {
			t.Fatalf("%s: claimed %d jobs, %v", part, len(claimed), err)
		}
		return claimed[0]
	}
	full := idempotent("bound")
	full.Tags, full.RetryPolicy, full.ConcurrencyKey = []string{"b", "a"}, commands.ExponentialRetry{Initial: time.Second, Max: time.Hour}, "one"
	full.Deadline, full.ExecutionTimeout, full.Priority = time.Now().Add(time.Hour), time.Minute, 7
	full.RunAt = time.Now().Add(time.Minute)
	accept("bound", queue, full)
	accept("rotating", newQueue(t, db.Pool, keys), idempotent("rotating"))
	debounce := commands.EnqueueOptions{Debounce: &commands.Debounce{Key: ledger.NewKey("debounced"), Window: time.Hour}}
	accept("debounced", queue, debounce)
	accept("debounced", queue, commands.EnqueueOptions{Debounce: &commands.Debounce{Key: ledger.NewKey("debounced"), Window: 2 * time.Hour}})
	accept("released", queue, idempotent("released"))
	hash, _ := ledger.Keys{}.Hash(commands.DefaultScope, ledger.NewKey("released"))
	if _, err := queue.ReleaseKey(ctx, commands.DefaultScope, hash.Digest(), act); err != nil {
		t.Fatal(err)
	}
	accept("ready", queue, commands.EnqueueOptions{})
	accept("active", queue, commands.EnqueueOptions{})
	claim("active")
	accept("succeeded", queue, idempotent("succeeded"))
	if _, err := queue.CompleteJobs(ctx, claim("succeeded").Claim); err != nil {
		t.Fatal(err)
	}
	accept("retried", queue, commands.EnqueueOptions{})
	if _, err := queue.FailJob(ctx, claim("retried").Claim, "it broke"); err != nil {
		t.Fatal(err)
	}
	accept("failed", queue, commands.EnqueueOptions{AttemptBudget: 1})
	if _, err := queue.FailJob(ctx, claim("failed").Claim, "it broke"); err != nil {
		t.Fatal(err)
	}
	if c["redriven"], _, err = queue.RedriveJob(ctx, c["failed"], act, "redrive"); err != nil {
		t.Fatal(err)
	}
	accept("cancelled", queue, commands.EnqueueOptions{})
	if err := queue.CancelJob(ctx, c["cancelled"], act); err != nil {
		t.Fatal(err)
	}
	accept("purged", queue, idempotent("purged"))
	if _, err := queue.Purge(ctx, "purged", act, "purge"); err != nil {
		t.Fatal(err)
	}
	sequence(t, db.Pool)
	return c
}

// Each kind of damage to a binding or a job is found, with the columns that differ and the position of the event that says so.
func TestVerifyFindsDamageOfBindingsAndJobs(t *testing.T) {
	t.Parallel()
	type difference struct {
		Table, Kind, Columns string
		// Kind of the event at the position that is told; "" where none is.
		Event ledger.Kind
	}
	for name, test := range map[string]struct {
		part   string // whose job is damaged
		damage string // with the job as $1
		want   []difference
	}{
		"binding gone": {
			"bound", `delete from daybook.binding where job_id = $1`,
			[]difference{{"binding", "missing", "", ledger.KindAccepted}},
		},
		"replaced binding gone": {
			"debounced", `delete from daybook.binding where job_id = $1`,
			[]difference{{"binding", "missing", "", ledger.KindReplaced}},
		},
		"binding that was released is back": {
			"released", `insert into daybook.binding (key_hash, job_id, bound_at, expires_at, window_ms, mode, scope, key_preview, request_digest)
				select key_hash, job_id, recorded_at, recorded_at, 1, 'idempotency', scope, key_preview, '\x01'
				from daybook.event where job_id = $1 and kind = 'enqueue.accepted'`,
			[]difference{{"binding", "extra", "", ledger.KindBindingReleased}},
		},
		"binding that nobody asked for": {
			"bound", `insert into daybook.binding (key_hash, job_id, bound_at, expires_at, window_ms, mode, scope, key_preview, request_digest)
				select sha256(''), $1, now(), now(), 1, 'idempotency', 'default', '', '\x01'`,
			[]difference{{"binding", "extra", "", ""}},
		},
		"every column of a binding": {
			"bound", `update daybook.binding
				set bound_at = bound_at + interval '1 us', expires_at = expires_at + interval '1 us', window_ms = window_ms + 1,
					replaced = 1, mode = 'throttle', scope = 'other', key_preview = 'x', request_digest = request_digest || '\x00'
				where job_id = $1`,
			[]difference{{"binding", "different", "bound_at expires_at key_preview mode replaced request_digest scope window_ms", ledger.KindAccepted}},
		},
		"binding of another job": {
			"bound", `update daybook.binding set job_id = (select job_id from daybook.job where queue = 'ready') where job_id = $1`,
			[]difference{{"binding", "different", "job_id", ledger.KindAccepted}},
		},
		"count of replacements": {
			"debounced", `update daybook.binding set replaced = 0 where job_id = $1`,
			[]difference{{"binding", "different", "replaced", ledger.KindReplaced}},
		},
		"finished job of a live binding gone": {
			"succeeded", `delete from daybook.job where job_id = $1`,
			[]difference{{"binding", "different", "job", ledger.KindAccepted}},
		},
		"alias gone": {
			"rotating", `delete from daybook.binding where job_id = $1 and alias_of is not null`,
			[]difference{{"binding", "different", "other_hashes", ledger.KindAccepted}},
		},
		"alias left": {
			"rotating", `delete from daybook.binding where job_id = $1 and alias_of is null`,
			[]difference{{"binding", "missing", "", ledger.KindAccepted}, {"binding", "extra", "alias_of", ""}},
		},
		"waiting job gone": {
			"ready", `delete from daybook.job where job_id = $1`,
			[]difference{{"job", "missing", "", ledger.KindAccepted}},
		},
		"active job gone": {
			"active", `delete from daybook.job where job_id = $1`,
			[]difference{{"job", "missing", "", ledger.KindJobStarted}},
		},
		"redriven job gone": {
			"redriven", `delete from daybook.job where job_id = $1`,
			[]difference{{"job", "missing", "", ledger.KindJobRedriven}},
		},
		"purged job is back": {
			"purged", `insert into daybook.job (job_id, run_at, accepted_at, priority, attempt_budget, state, queue, type, payload)
				values ($1, now(), now(), 0, 1, 'ready', 'q', 't', '1')`,
			[]difference{{"job", "extra", "", ledger.KindJobPurged}},
		},
		"job that nobody asked for": {
			"ready", `insert into daybook.job (job_id, run_at, accepted_at, priority, attempt_budget, state, queue, type, payload)
				select gen_random_uuid(), run_at, accepted_at, 0, 1, 'ready', 'q', 't', '1' from daybook.job where job_id = $1`,
			[]difference{{"job", "extra", "", ""}},
		},
		"everything that was asked for": {
			"bound", `update daybook.job
				set accepted_at = accepted_at + interval '1 us', after_job_id = job_id, attempt_budget = 2, concurrency_key = 'x',
					deadline = null, execution_timeout_ms = 1, key_hash = null, payload = '"other"', priority = 1, queue = 'x',
					retry_kind = 'fixed', run_at = run_at + interval '1 us', tags = null, type = 'x'
				where job_id = $1`,
			[]difference{{
				"job", "different", "accepted_at after_job_id attempt_budget concurrency_key deadline execution_timeout_ms key_hash payload priority " +
					"queue retry_policy run_at tags type", ledger.KindAccepted,
			}},
		},
		"payload of another size, replaced": {
			"debounced", `update daybook.job set payload = '1' where job_id = $1`,
			[]difference{{"job", "different", "payload", ledger.KindReplaced}},
		},
		"attempt more": {
			"retried", `update daybook.job set attempt = 2 where job_id = $1`,
			[]difference{{"job", "different", "attempt", ledger.KindJobAttemptFailed}},
		},
		"attempt that is not active": {
			"active", `update daybook.job set state = 'ready' where job_id = $1`,
			[]difference{{"job", "different", "lease_expires_at state", ledger.KindJobStarted}},
		},
		"retry that does not wait": {
			"retried", `update daybook.job set run_at = run_at + interval '1 us' where job_id = $1`,
			[]difference{{"job", "different", "run_at", ledger.KindJobAttemptFailed}},
		},
		"scheduled that was ready": {
			"ready", `update daybook.job set state = 'scheduled' where job_id = $1`,
			[]difference{{"job", "different", "state", ledger.KindAccepted}},
		},
		"ready before its time": {
			"debounced", `update daybook.job set state = 'ready' where job_id = $1`,
			[]difference{{"job", "different", "state", ledger.KindReplaced}},
		},
		"finished again": {
			"succeeded", `update daybook.job set state = 'failed', finished_at = finished_at + interval '1 us' where job_id = $1`,
			[]difference{{"job", "different", "finished_at state", ledger.KindJobSucceeded}},
		},
		"cancelled that runs": {
			"cancelled", `update daybook.job set state = 'ready' where job_id = $1`,
			[]difference{{"job", "different", "state", ledger.KindJobCancelled}},
		},
		"redriven with another budget": {
			"redriven", `update daybook.job set attempt_budget = 9, attempt = 1 where job_id = $1`,
			[]difference{{"job", "different", "attempt attempt_budget", ledger.KindJobRedriven}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			jobs := perform(t, db)
			before := verifyState(t, db.Pool)
			if !before.OK || before.Tables[0].Rows < 5 || before.Tables[1].Rows < 9 {
				t.Fatalf("before the damage: %+v", before)
			}
			damage(t, db, test.damage, jobs[test.part])
			report := verifyState(t, db.AsRole(t, "daybook_operator"))
			got := []difference{}
			for _, table := range report.Tables {
				if n := len(table.Samples); int64(n) != table.Missing+table.Extra+table.Different {
					t.Errorf("%d samples of %+v", n, table)
				}
				first := ledger.Position(0)
				for _, s := range table.Samples {
					d := difference{Table: table.Table, Kind: s.Kind, Columns: strings.Join(s.Columns, " ")}
					if s.Position > 0 {
						d.Event = one[ledger.Kind](t, db.Pool, `select kind from daybook.feed where position = $1 and event_id = $2`, s.Position, s.EventID)
						if first == 0 {
							first = s.Position
						}
					}
					got = append(got, d)
					if len(s.KeyDigest) > 12 {
						t.Errorf("key digest %s", s.KeyDigest)
					}
				}
				if table.FirstPosition != first {
					t.Errorf("first position %d, want %d", table.FirstPosition, first)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" || report.OK {
				t.Errorf("OK %v, differences (-want +got):\n%s", report.OK, diff)
			}
		})
	}
}

// What is committed and not sequenced yet counts; what has not committed does not, neither the event nor its rows.
func TestVerifyStateWithoutSequencing(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	queue := newQueue(t, db.Pool, ledger.Keys{})
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	o := commands.EnqueueOptions{Type: "type", Throttle: &commands.Throttle{Key: ledger.NewKey("a key"), Window: time.Hour}}
	if _, err := queue.EnqueueTx(t.Context(), tx, o); err != nil {
		t.Fatal(err)
	}
	rows := func() [2]int64 {
		report := verifyState(t, db.Pool)
		if !report.OK || report.Position != 0 {
			t.Errorf("%+v", report)
		}
		return [2]int64{report.Tables[0].Rows, report.Tables[1].Rows}
	}
	if got := rows(); got != [2]int64{} {
		t.Errorf("before the commit: %v", got)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := rows(); got != [2]int64{1, 1} {
		t.Errorf("after the commit: %v", got)
	}
	db.Exec(t, `delete from daybook.job`)
	report := verifyState(t, db.Pool)
	if job := report.Tables[1]; job.Missing != 1 || job.FirstPosition != 0 || job.Samples[0].EventID == 0 {
		t.Errorf("%+v", job)
	}
}

// Cut into slices, the report is the same, and its samples are the first ones of all.
func TestVerifyStateInSlices(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	fill(t, db, 400)
	db.Exec(t, `update daybook.job set type = 'x'`)
	db.Exec(t, `delete from daybook.binding as b using daybook.job as j where j.job_id = b.job_id and (j.payload)::int % 4 = 0`)
	whole := verifyState(t, db.Pool)
	// Only the number of slices goes by the head.
	db.Exec(t, `update daybook.sequencer set head = 100000000`)
	var steps int
	sliced, err := commands.Verify(t.Context(), db.Pool, func(done, of int) {
		if steps++; done != steps || of != 102 {
			t.Errorf("step %d: %d of %d", steps, done, of)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(whole, sliced); diff != "" {
		t.Errorf("in slices (-whole +slices):\n%s", diff)
	}
	if b, j := whole.Tables[0], whole.Tables[1]; b.Missing != 100 || j.Different != 400 || len(j.Samples) != commands.MaxSamples ||
		j.FirstPosition != 1 || j.Samples[19].Position != 20 {
		t.Errorf("%+v", whole)
	}
}
