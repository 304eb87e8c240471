package commands_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// full is a request with every field that an idempotency key goes with.
func full() commands.EnqueueOptions {
	o := order("full", `{"order":1}`)
	o.Queue, o.Priority, o.ConcurrencyKey, o.Tags, o.AttemptBudget = "orders", 7, "customer 5", []string{"b", "a"}, 3
	o.RetryPolicy = commands.ExponentialRetry{Initial: time.Second, Max: time.Minute}
	o.RunAt, o.Deadline = noon.Add(time.Hour), noon.Add(2*time.Hour)
	o.ExecutionTimeout = time.Minute
	o.Idempotency.Scope, o.Idempotency.TTL = "shop", time.Hour
	return o
}

// material are changes to full, by the field that each makes differ.
var material = map[string][]func(*commands.EnqueueOptions){
	"type":            {func(o *commands.EnqueueOptions) { o.Type = "order.cancel" }},
	"payload":         {func(o *commands.EnqueueOptions) { o.Payload = nil }},
	"queue":           {func(o *commands.EnqueueOptions) { o.Queue = "" }},
	"priority":        {func(o *commands.EnqueueOptions) { o.Priority = 0 }},
	"concurrency_key": {func(o *commands.EnqueueOptions) { o.ConcurrencyKey = "" }, func(o *commands.EnqueueOptions) { o.ConcurrencyKey = "customer 6" }},
	"tags": {
		func(o *commands.EnqueueOptions) { o.Tags = nil },
		func(o *commands.EnqueueOptions) { o.Tags = []string{"a"} },
		func(o *commands.EnqueueOptions) { o.Tags = []string{"a", "b", "c"} },
		func(o *commands.EnqueueOptions) { o.Tags = []string{"a", "B"} },
	},
	"attempt_budget": {func(o *commands.EnqueueOptions) { o.AttemptBudget = 0 }},
	"retry_policy": {
		func(o *commands.EnqueueOptions) { o.RetryPolicy = nil },
		func(o *commands.EnqueueOptions) {
			o.RetryPolicy = commands.DecorrelatedJitterRetry{Initial: time.Second, Max: time.Minute}
		},
		func(o *commands.EnqueueOptions) {
			o.RetryPolicy = commands.ExponentialRetry{Initial: 2 * time.Second, Max: time.Minute}
		},
		func(o *commands.EnqueueOptions) {
			o.RetryPolicy = commands.ExponentialRetry{Initial: time.Second, Max: time.Hour}
		},
	},
	"run_at": {
		func(o *commands.EnqueueOptions) { o.RunAt = time.Time{} },
		func(o *commands.EnqueueOptions) { o.RunAt = o.RunAt.Add(time.Microsecond) },
	},
	"deadline": {
		func(o *commands.EnqueueOptions) { o.Deadline = time.Time{} },
		func(o *commands.EnqueueOptions) { o.Deadline = o.Deadline.Add(time.Microsecond) },
	},
	"execution_timeout": {
		func(o *commands.EnqueueOptions) { o.ExecutionTimeout = 0 },
		func(o *commands.EnqueueOptions) { o.ExecutionTimeout += time.Millisecond },
	},
	"ttl": {func(o *commands.EnqueueOptions) { o.Idempotency.TTL += time.Millisecond }},
}

// §4.2: each material field makes a conflict that names it, whichever of the two requests has it; all of them name
// all, sorted.
func TestEveryMaterialField(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.FreezeClock(t, noon)
	queue := newQueue(t, db.Pool)
	wantOutcome(t, decide(t, queue, full()), commands.OutcomeAccepted)
	wantOutcome(t, decide(t, queue, full()), commands.OutcomeReplayed)
	for field, changes := range material {
		for i, change := range changes {
			o := full()
			change(&o)
			wantFields(t, decide(t, queue, o), field)
			// The other way round: the union of both requests' fields counts.
			o.Idempotency.Key = ledger.NewKey(field + string(rune('a'+i)))
			wantOutcome(t, decide(t, queue, o), commands.OutcomeAccepted)
			swapped := full()
			swapped.Idempotency.Key = o.Idempotency.Key
			wantFields(t, decide(t, queue, swapped), field)
		}
	}
	all := full()
	for _, changes := range material {
		changes[0](&all)
	}
	wantFields(t, decide(t, queue, all), "attempt_budget", "concurrency_key", "deadline", "execution_timeout", "payload", "priority",
		"queue", "retry_policy", "run_at", "tags", "ttl", "type")
	throttled := full()
	throttled.Throttle = &commands.Throttle{Key: throttled.Idempotency.Key, Scope: "shop", Window: time.Hour}
	throttled.Idempotency = nil
	wantFields(t, decide(t, queue, throttled), "mode", "ttl", "window")
}

// Not material: the order and repetition of tags, and what is truncated. Another scope is another key.
func TestWhatDoesNotMatter(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.FreezeClock(t, noon)
	queue := newQueue(t, db.Pool)
	first := decide(t, queue, full())
	o := full()
	o.Tags = []string{"a", "b", "a"}
	o.RunAt, o.Deadline = o.RunAt.Add(999), o.Deadline.Add(999)
	o.ExecutionTimeout += 999 * time.Microsecond
	o.Idempotency.TTL += 999 * time.Microsecond
	again := decide(t, queue, o)
	wantOutcome(t, again, commands.OutcomeReplayed)
	if again.JobID != first.JobID || !again.BoundAt.Equal(noon) || !again.ExpiresAt.Equal(noon.Add(time.Hour)) {
		t.Errorf("replayed as %+v", again)
	}
	o.Idempotency.Scope = "another shop"
	if other := decide(t, queue, o); other.Outcome != commands.OutcomeAccepted || other.JobID == first.JobID {
		t.Errorf("in another scope: %+v", other)
	}
}

// Instants are truncated to microseconds, and compared as instants whatever the session's time zone.
func TestInstantsAndTimeZones(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	queue := newQueue(t, db.Pool)
	o := order("new year", "1")
	o.RunAt = time.Date(2030, 12, 31, 23, 59, 59, 999_999_999, time.UTC)
	want := time.Date(2030, 12, 31, 23, 59, 59, 999_999_000, time.UTC)
	var first commands.EnqueueResult
	for i, zone := range []string{"UTC", "Asia/Tokyo", "America/New_York", "Asia/Kathmandu"} {
		location, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeSimpleProtocol} {
			config, err := pgx.ParseConfig(db.URL)
			if err != nil {
				t.Fatal(err)
			}
			config.RuntimeParams["timezone"] = zone
			config.DefaultQueryExecMode = mode
			conn, err := pgx.ConnectConfig(ctx, config)
			if err != nil {
				t.Fatal(err)
			}
			o.RunAt = o.RunAt.In(location)
			got := decideTx(t, queue, conn, o)
			batch, err := queue.DecideManyTx(ctx, conn, []commands.EnqueueOptions{o, o})
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.Close(ctx)
			if i == 0 && mode == pgx.QueryExecModeCacheStatement {
				first = got
				wantOutcome(t, got, commands.OutcomeAccepted)
			} else {
				wantOutcome(t, got, commands.OutcomeReplayed)
			}
			for _, result := range append(batch, got) {
				if result.JobID != first.JobID || !result.BoundAt.Equal(first.BoundAt) || result.BoundAt.Location() != time.UTC {
					t.Errorf("in %s: %+v, want %+v", zone, result, first)
				}
			}
		}
	}
	if got := query1[time.Time](t, db.Pool, "select run_at from daybook.job"); !got.Equal(want) {
		t.Errorf("runs at %v, want %v", got, want)
	}
	if got := query1[string](t, db.Pool, "select body ->> 'run_at' from daybook.event"); got != "2030-12-31T23:59:59.999999Z" {
		t.Errorf("the event says %s", got)
	}
	o.RunAt = o.RunAt.Add(-time.Microsecond)
	wantFields(t, decide(t, queue, o), "run_at")
}

// An omitted run-at stays omitted: a late replay of an immediate job is still the same request, and the run time that it was
// given is not.
func TestOmittedRunAt(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.FreezeClock(t, noon)
	queue := newQueue(t, db.Pool)
	wantOutcome(t, decide(t, queue, order("k", "1")), commands.OutcomeAccepted)
	db.AdvanceClock(t, 23*time.Hour)
	wantOutcome(t, decide(t, queue, order("k", "1")), commands.OutcomeReplayed)
	explicit := order("k", "1")
	explicit.RunAt = noon
	wantFields(t, decide(t, queue, explicit), "run_at")
}

// What was accepted once replays, whatever has become invalid since: a deadline that has passed.
func TestReplayBeforeValidation(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	db.FreezeClock(t, noon)
	queue := newQueue(t, db.Pool)
	o := order("k", `{"a":1}`)
	o.Deadline = noon.Add(time.Minute)
	wantOutcome(t, decide(t, queue, o), commands.OutcomeAccepted)
	db.AdvanceClock(t, time.Hour)
	wantOutcome(t, decide(t, queue, o), commands.OutcomeReplayed)
	batch, err := queue.EnqueueMany(ctx, []commands.EnqueueOptions{o, order("other", "1"), o})
	if err != nil {
		t.Fatal(err)
	}
	wantOutcome(t, batch[0], commands.OutcomeReplayed)
	wantOutcome(t, batch[2], commands.OutcomeReplayed)
	o.Priority = 1
	wantFields(t, decide(t, queue, o), "priority")
	o.Idempotency.Key = ledger.NewKey("fresh")
	_, err = queue.Decide(ctx, o)
	wantInvalid(t, "a deadline that has passed", err, "deadline", 0)
}

// The digest may speed the comparison up; it never decides that two equal requests differ. A digest of another version is
// compared field by field.
func TestDigestOfAnotherVersion(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.FreezeClock(t, noon)
	queue := newQueue(t, db.Pool)
	first := decide(t, queue, full())
	db.Exec(t, `update daybook.binding set request_digest = '\x02' || sha256('another version')`)
	again := decide(t, queue, full())
	wantOutcome(t, again, commands.OutcomeReplayed)
	if again.JobID != first.JobID {
		t.Error("replayed as another job")
	}
	batch, err := queue.EnqueueMany(context.Background(), []commands.EnqueueOptions{full(), full()})
	if err != nil {
		t.Fatal(err)
	}
	wantOutcome(t, batch[1], commands.OutcomeReplayed)
	o := full()
	o.Tags = nil
	wantFields(t, decide(t, queue, o), "tags")
}

// A job that is gone is no proof of sameness: what it was asked for can't be compared any more.
func TestBindingWithoutItsJob(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	queue := newQueue(t, db.Pool)
	first := decide(t, queue, order("k", "1"))
	db.Exec(t, "delete from daybook.job")
	if again := decide(t, queue, order("k", "1")); again.Outcome != commands.OutcomeReplayed || again.JobID != first.JobID {
		t.Errorf("the same request: %+v", again)
	}
	wantOutcome(t, decide(t, queue, order("k", "2")), commands.OutcomeConflictRejected)
}

// Windows are closed-open, fixed from acceptance, and not extended by a replay.
func TestExpiry(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.FreezeClock(t, noon)
	queue := newQueue(t, db.Pool)
	o := order("k", "1")
	o.Idempotency.TTL = time.Second
	first := decide(t, queue, o)
	db.FreezeClock(t, noon.Add(time.Second-time.Microsecond))
	again := decide(t, queue, o)
	wantOutcome(t, again, commands.OutcomeReplayed)
	if !again.ExpiresAt.Equal(noon.Add(time.Second)) {
		t.Errorf("expires at %v", again.ExpiresAt)
	}
	o.Priority = 1 // work that was a conflict a microsecond before
	wantOutcome(t, decide(t, queue, o), commands.OutcomeConflictRejected)
	db.FreezeClock(t, noon.Add(time.Second))
	second := decide(t, queue, o)
	wantOutcome(t, second, commands.OutcomeAccepted)
	if second.JobID == first.JobID || !second.BoundAt.Equal(noon.Add(time.Second)) {
		t.Errorf("accepted as %+v", second)
	}
	wantFootprint(t, db.Pool, footprint{Jobs: 2, Bindings: 1, Events: []ledger.Kind{
		ledger.KindAccepted, ledger.KindConflictRejected, ledger.KindBindingExpired, ledger.KindAccepted,
	}})
}

// A request that is invalid by the database's clock leaves a binding alone that has expired: it is refused, and nothing else.
func TestInvalidOnExpiredBinding(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	db.FreezeClock(t, noon)
	queue := newQueue(t, db.Pool)
	wantOutcome(t, decide(t, queue, order("k", "1")), commands.OutcomeAccepted)
	db.AdvanceClock(t, commands.DefaultTTL)
	o := order("k", "1")
	o.Deadline = noon
	_, err := queue.Decide(ctx, o)
	wantInvalid(t, "single", err, "deadline", 0)
	_, err = queue.DecideMany(ctx, []commands.EnqueueOptions{order("other", "1"), o})
	wantInvalid(t, "batch", err, "deadline", 1)
	wantFootprint(t, db.Pool, footprint{Jobs: 1, Bindings: 1, Events: []ledger.Kind{ledger.KindAccepted}})
}

// The caller's clock never matters. In the bubble it is the year 2000.
func TestProcessClock(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.FreezeClock(t, noon)
	queue := newQueue(t, db.Pool)
	now := order("now", "1")
	later := order("later", "1")
	later.RunAt, later.Deadline = noon.Add(time.Minute), noon.Add(time.Hour)
	first := []commands.EnqueueResult{decide(t, queue, now), decide(t, queue, later)}
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		if time.Now().Year() != 2000 {
			t.Fatalf("the bubble's clock says %v", time.Now())
		}
		conn, err := pgx.Connect(ctx, db.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(ctx)
		for i, o := range []commands.EnqueueOptions{now, later} {
			again := decideTx(t, queue, conn, o)
			wantOutcome(t, again, commands.OutcomeReplayed)
			if again.JobID != first[i].JobID || !again.BoundAt.Equal(noon) {
				t.Errorf("replayed as %+v, want %+v", again, first[i])
			}
		}
		fresh := decideTx(t, queue, conn, order("fresh", "1"))
		wantOutcome(t, fresh, commands.OutcomeAccepted)
		if !fresh.BoundAt.Equal(noon) || !fresh.ExpiresAt.Equal(noon.Add(commands.DefaultTTL)) {
			t.Errorf("bound at %v to %v", fresh.BoundAt, fresh.ExpiresAt)
		}
	})
}
