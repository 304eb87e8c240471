package commands_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// §4.6: the error carries all that helps to understand it, and no value.
func TestConflictError(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	db.FreezeClock(t, noon)
	queue := newQueue(t, db.Pool)
	const raw = "order 5b1e7c04-77"
	o := order(raw, `{"amount":4999}`)
	o.Idempotency.Scope = "shop"
	owner := decide(t, queue, o)
	o.Payload, o.Priority = map[string]int{"amount": 5999}, 5
	_, err := queue.Enqueue(ctx, o)
	var conflict *commands.EnqueueIdempotencyConflictError
	if !errors.As(fmt.Errorf("wrapped: %w", err), &conflict) {
		t.Fatalf("%v", err)
	}
	hash, _ := ledger.Keys{}.Hash("shop", ledger.NewKey(raw))
	want := &commands.EnqueueIdempotencyConflictError{
		Scope: "shop", KeyPreview: "order…", KeyDigest: hash.Digest(), Mode: commands.ModeIdempotency, JobID: owner.JobID, State: commands.JobReady,
		TwinOrdinal: -1, BoundAt: noon, ExpiresAt: noon.Add(24 * time.Hour), Fields: []string{"payload", "priority"},
	}
	ignore := cmpopts.IgnoreFields(commands.EnqueueIdempotencyConflictError{}, "RequestDigest", "ExistingRequestDigest")
	if diff := cmp.Diff(want, conflict, ignore, cmpopts.IgnoreUnexported(commands.EnqueueIdempotencyConflictError{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if conflict.RequestDigest == conflict.ExistingRequestDigest || conflict.RequestDigest == (commands.RequestDigest{}) {
		t.Errorf("digests %s and %s", conflict.RequestDigest, conflict.ExistingRequestDigest)
	}
	for _, printed := range []string{err.Error(), fmt.Sprintf("%+v", conflict), fmt.Sprintf("%#v", conflict)} {
		if strings.Contains(printed, raw) || strings.Contains(printed, "4999") || strings.Contains(printed, "5999") {
			t.Errorf("printed as %s", printed)
		}
	}
	// The event says the same, to those who may read the ledger.
	const body = `select concat_ws('|', body ->> 'job_id', body ->> 'fields', body ->> 'request_digest', body ->> 'existing_request_digest',
		body ->> 'key_digest', body ->> 'key_preview', body ->> 'scope') from daybook.event where kind = 'enqueue.conflict_rejected'`
	wantBody := fmt.Sprintf(`%s|["payload","priority"]|%s|%s|%s|order…|shop`,
		owner.JobID, conflict.RequestDigest, conflict.ExistingRequestDigest, hash.Digest())
	if got := query1[string](t, db.Pool, body); got != wantBody {
		t.Errorf("the event says %s, want %s", got, wantBody)
	}
}

// The same rejected request is recorded once, however often it is retried and by whichever way; another request is another
// fact, and so is the same one against the next binding.
func TestConflictIsRecordedOnce(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	db.FreezeClock(t, noon)
	queue := newQueue(t, db.Pool)
	recorded := func() int64 {
		t.Helper()
		return query1[int64](t, db.Pool, "select count(*) from daybook.event where kind = 'enqueue.conflict_rejected'")
	}
	decide(t, queue, order("k", "1"))
	other := order("k", `{"n":2}`)

	// First of all by a caller that rolls back, and loses the event with the rest.
	tx := begin(t, db.Pool, pgx.TxOptions{})
	_, lost := queue.EnqueueTx(ctx, tx, other)
	rollback(t, tx)
	if got := recorded(); !isConflict(lost) || got != 0 {
		t.Fatalf("%v, %d recorded", lost, got)
	}
	ways := []func() error{
		func() error { return queue.RecordRejection(ctx, lost) },
		func() error { _, err := queue.Enqueue(ctx, other); return err },
		func() error { _, err := queue.Decide(ctx, other); return err },
		func() error { _, err := queue.EnqueueMany(ctx, []commands.EnqueueOptions{other, other}); return err },
		func() error { _, err := queue.DecideMany(ctx, []commands.EnqueueOptions{other, other}); return err },
		func() error {
			return queue.InTx(ctx, func(tx pgx.Tx) error {
				_, err := queue.EnqueueTx(ctx, tx, other)
				return err
			})
		},
		func() error {
			return queue.InTx(ctx, func(tx pgx.Tx) error {
				_, err := queue.DecideTx(ctx, tx, order("k", ` { "n" : 2.0 } `))
				return err
			})
		},
		func() error { return queue.RecordRejection(ctx, fmt.Errorf("wrapped: %w", lost)) },
	}
	for n, a := range together(1000, func(i int) (commands.EnqueueResult, error) {
		err := ways[i%len(ways)]()
		if isConflict(err) {
			err = nil
		}
		return commands.EnqueueResult{}, err
	}) {
		if a.err != nil {
			t.Fatalf("way %d: %v", n%len(ways), a.err)
		}
	}
	if got := recorded(); got != 1 {
		t.Fatalf("%d recorded of the same conflict", got)
	}
	wantOutcome(t, decide(t, queue, order("k", `{"n":3}`)), commands.OutcomeConflictRejected)
	if got := recorded(); got != 2 {
		t.Errorf("%d recorded of two different conflicts", got)
	}

	// The next binding of the key. What was refused against the last one can no longer be recorded against this one.
	db.AdvanceClock(t, commands.DefaultTTL)
	wantOutcome(t, decide(t, queue, order("k", "1")), commands.OutcomeAccepted)
	if err := queue.RecordRejection(ctx, lost); err != nil {
		t.Fatal(err)
	}
	if got := recorded(); got != 2 {
		t.Errorf("recorded against another binding: %d", got)
	}
	wantOutcome(t, decide(t, queue, other), commands.OutcomeConflictRejected)
	if got := recorded(); got != 3 {
		t.Errorf("%d recorded after the next binding", got)
	}
}

// A repeated conflict writes nothing, like a replay.
func TestRepeatedConflictTakesNoXID(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	queue := newQueue(t, db.Pool)
	decide(t, queue, order("k", "1"))
	decide(t, queue, order("k", "2"))
	tx := begin(t, db.Pool, pgx.TxOptions{})
	wantOutcome(t, decideTx(t, queue, tx, order("k", "2")), commands.OutcomeConflictRejected)
	if xid := query1[*string](t, tx, "select pg_current_xact_id_if_assigned()::text"); xid != nil {
		t.Errorf("it took the xid %s", *xid)
	}
}

// InTx commits work that succeeds, rolls back work that does not, and keeps the conflict alone.
func TestInTx(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	db.Exec(t, "create table mine (n int)")
	queue := newQueue(t, db.Pool)
	work := func(n int, fail error, requests ...commands.EnqueueOptions) error {
		return queue.InTx(ctx, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "insert into mine values ($1)", n); err != nil {
				return err
			}
			for _, o := range requests {
				if _, err := queue.EnqueueTx(ctx, tx, o); err != nil {
					return fmt.Errorf("order %d: %w", n, err)
				}
			}
			return fail
		})
	}
	if err := work(1, nil, order("k", "1")); err != nil {
		t.Fatal(err)
	}
	failure := errors.New("no stock")
	if err := work(2, failure, order("lost", "1")); !errors.Is(err, failure) {
		t.Errorf("%v", err)
	}
	err := work(3, nil, order("lost too", "1"), order("k", "2"))
	var conflict *commands.EnqueueIdempotencyConflictError
	if !errors.As(err, &conflict) || !strings.Contains(err.Error(), "order 3") {
		t.Errorf("%v", err)
	}
	// A conflict with a job of the very transaction that is rolled back has no owner any more.
	if err := work(4, nil, order("own", "1"), order("own", "2")); !isConflict(err) {
		t.Errorf("%v", err)
	}
	if diff := cmp.Diff([]int{1}, query[int](t, db.Pool, "select n from mine")); diff != "" {
		t.Errorf("rows of mine (-want +got):\n%s", diff)
	}
	wantFootprint(t, db.Pool, footprint{
		Jobs: 1, Bindings: 1, Rejections: 1, Events: []ledger.Kind{ledger.KindAccepted, ledger.KindConflictRejected},
	})
	// What can't be recorded is told beside the conflict, and hides neither.
	db.Exec(t, "revoke all on function daybook.record_rejection from daybook_app")
	app := newQueue(t, db.AsRole(t, "daybook_app"))
	err = app.InTx(ctx, func(tx pgx.Tx) error {
		_, err := app.EnqueueTx(ctx, tx, order("k", "3"))
		return err
	})
	var call *commands.CallError
	if !errors.As(err, &conflict) || !errors.As(err, &call) || call.Op != "record rejection" {
		t.Errorf("%v", err)
	}
	if err := queue.RecordRejection(ctx, nil); err != nil {
		t.Errorf("no error at all: %v", err)
	}
	if err := queue.RecordRejection(ctx, failure); err != nil {
		t.Errorf("an error without a conflict: %v", err)
	}
}
