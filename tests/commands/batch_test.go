package commands_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// §4.5: of equal requests in a batch the first is accepted, and all have its job; results are in the order of the requests.
func TestEqualTwins(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	for name, call := range map[string]func(*commands.Queue, []commands.EnqueueOptions) ([]commands.EnqueueResult, error){
		"EnqueueMany": func(queue *commands.Queue, batch []commands.EnqueueOptions) ([]commands.EnqueueResult, error) {
			return queue.EnqueueMany(ctx, batch)
		},
		"DecideMany": func(queue *commands.Queue, batch []commands.EnqueueOptions) ([]commands.EnqueueResult, error) {
			return queue.DecideMany(ctx, batch)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			queue := newQueue(t, db.Pool)
			batch := []commands.EnqueueOptions{order("k", `{"a":1,"b":2}`), order("k", `{"b":2.0,"a":1}`), order("k'", "1"), {Type: "no key"}, {Type: "no key"}}
			results, err := call(queue, batch)
			if err != nil {
				t.Fatal(err)
			}
			want := []commands.EnqueueOutcome{"accepted", "replayed", "accepted", "accepted", "accepted"}
			if diff := cmp.Diff(want, outcomes(results)); diff != "" {
				t.Errorf("outcomes (-want +got):\n%s", diff)
			}
			jobs := map[uuid.UUID]bool{}
			for _, result := range results {
				jobs[result.JobID] = true
			}
			if results[0].JobID != results[1].JobID || len(jobs) != 4 {
				t.Errorf("jobs %v", results)
			}
			// Once more: all that has a key is replayed.
			again, err := call(queue, batch)
			if err != nil {
				t.Fatal(err)
			}
			want = []commands.EnqueueOutcome{"replayed", "replayed", "replayed", "accepted", "accepted"}
			if diff := cmp.Diff(want, outcomes(again)); diff != "" {
				t.Errorf("outcomes (-want +got):\n%s", diff)
			}
			for i := range 3 {
				if again[i].JobID != results[i].JobID || !again[i].BoundAt.Equal(results[i].BoundAt) || !again[i].ExpiresAt.Equal(results[i].ExpiresAt) {
					t.Errorf("item %d: %+v, want %+v", i, again[i], results[i])
				}
			}
		})
	}
}

// Different content under one key: that later item is a conflict. DecideMany answers item by item.
func TestDifferentTwins(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	queue := newQueue(t, db.Pool)
	results, err := queue.DecideMany(context.Background(), []commands.EnqueueOptions{order("k", "1"), order("k", "2"), order("k'", "1")})
	if err != nil {
		t.Fatal(err)
	}
	want := []commands.EnqueueOutcome{"accepted", "conflict_rejected", "accepted"}
	if diff := cmp.Diff(want, outcomes(results)); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
	wantFields(t, results[1], "payload")
	conflict := results[1].Conflict
	if conflict.Ordinal != 1 || conflict.JobID != results[0].JobID || conflict.State != commands.JobReady || conflict.TwinOrdinal != -1 {
		t.Errorf("%+v", conflict)
	}
	wantFootprint(t, db.Pool, footprint{Jobs: 2, Bindings: 2, Rejections: 1, Events: []ledger.Kind{
		ledger.KindAccepted, ledger.KindAccepted, ledger.KindConflictRejected,
	}})
}

// EnqueueMany is all or nothing: with any conflict nothing of the batch is enqueued. The error lists each with its ordinal;
// those with the owner of a key are appended, those with a twin are not, for their owner was withdrawn too.
func TestConflictsUndoTheBatch(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	db.FreezeClock(t, noon)
	db.Exec(t, "create table mine (n int)")
	queue := newQueue(t, db.Pool)
	owner := decide(t, queue, order("owned", "1"))
	before := footprintOf(t, db.Pool)
	batch := []commands.EnqueueOptions{
		order("new", "1"), order("owned", "1"), order("twins", "1"), order("owned", "2"), order("twins", "1"), order("twins", "2"),
		{Type: "no key"},
		order("owned", "3"), order("twins", "3"), order("owned", "3"),
	}
	check := func(results []commands.EnqueueResult, err error) {
		t.Helper()
		var many *commands.EnqueueManyConflictError
		if !errors.As(err, &many) || results != nil {
			t.Fatalf("%v %v", results, err)
		}
		type seen struct {
			Ordinal, Twin int
			JobID         uuid.UUID
			State         commands.JobState
		}
		var got []seen
		for _, c := range many.Conflicts {
			got = append(got, seen{c.Ordinal, c.TwinOrdinal, c.JobID, c.State})
			if (c.TwinOrdinal >= 0) != (c.BoundAt.IsZero() && c.ExpiresAt.IsZero()) {
				t.Errorf("conflict %d is bound at %v to %v", c.Ordinal, c.BoundAt, c.ExpiresAt)
			}
			if diff := cmp.Diff([]string{"payload"}, c.Fields); diff != "" {
				t.Error(diff)
			}
		}
		want := []seen{
			{3, -1, owner.JobID, commands.JobReady},
			{5, 2, uuid.Nil, ""},
			{7, -1, owner.JobID, commands.JobReady},
			{8, 2, uuid.Nil, ""},
			{9, -1, owner.JobID, commands.JobReady},
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("conflicts (-want +got):\n%s", diff)
		}
		var one *commands.EnqueueIdempotencyConflictError
		if !errors.As(err, &one) || one != many.Conflicts[0] {
			t.Errorf("errors.As finds %+v", one)
		}
	}

	tx := begin(t, db.Pool, pgx.TxOptions{})
	check(queue.EnqueueManyTx(ctx, tx, batch))
	if _, err := tx.Exec(ctx, "insert into mine values (1)"); err != nil {
		t.Fatalf("the transaction is no longer usable: %v", err)
	}
	commit(t, tx)
	want := before
	want.Rejections = 2
	want.Events = append(slices.Clone(before.Events), ledger.KindConflictRejected, ledger.KindConflictRejected)
	wantFootprint(t, db.Pool, want)

	// Again and again, in other transactions and through RecordRejection: nothing more.
	for range 3 {
		results, err := queue.EnqueueMany(ctx, batch)
		check(results, err)
		if err := queue.RecordRejection(ctx, err); err != nil {
			t.Fatal(err)
		}
	}
	wantFootprint(t, db.Pool, want)
}

// A batch that conflicts within itself leaves no trace, and the error says which request claimed the key.
func TestConflictWithinTheBatchOnly(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	queue := newQueue(t, db.Pool)
	_, err := queue.EnqueueMany(ctx, []commands.EnqueueOptions{order("k", "1"), order("k", "2"), order("k'", "1")})
	var conflict *commands.EnqueueIdempotencyConflictError
	if !errors.As(err, &conflict) || conflict.Ordinal != 1 || conflict.TwinOrdinal != 0 {
		t.Fatalf("%v", err)
	}
	if err := queue.RecordRejection(ctx, err); err != nil {
		t.Fatal(err)
	}
	wantFootprint(t, db.Pool, footprint{})
}

// A withdrawn batch gives back what had expired, too: it has decided nothing.
func TestWithdrawnBatchOnExpiredKeys(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := pgtest.New(t)
	db.FreezeClock(t, noon)
	queue := newQueue(t, db.Pool)
	decide(t, queue, order("expired", "1"))
	db.AdvanceClock(t, commands.DefaultTTL)
	decide(t, queue, order("live", "1"))
	before := footprintOf(t, db.Pool)
	_, err := queue.EnqueueMany(ctx, []commands.EnqueueOptions{order("expired", "2"), order("expired", "3"), order("live", "1")})
	var conflict *commands.EnqueueIdempotencyConflictError
	if !errors.As(err, &conflict) || conflict.Ordinal != 1 || conflict.TwinOrdinal != 0 {
		t.Fatalf("%v", err)
	}
	wantFootprint(t, db.Pool, before)
	// Item by item the same is decided: the old binding goes, and then its successor refuses.
	results, err := queue.DecideMany(ctx, []commands.EnqueueOptions{order("expired", "2"), order("expired", "3"), order("live", "1")})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]commands.EnqueueOutcome{"accepted", "conflict_rejected", "replayed"}, outcomes(results)); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
}
