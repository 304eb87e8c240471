package ledger_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

func positions(events []ledger.Event) []ledger.Position {
	var all []ledger.Position
	for _, event := range events {
		all = append(all, event.Position)
	}
	return all
}

func TestRead(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	queue := newQueue(t, db.Pool)
	relay := db.AsRole(t, "daybook_relay")

	events, through, err := ledger.Read(t.Context(), relay, 0, 10)
	if err != nil || events != nil || through != 0 {
		t.Errorf("an empty ledger: %v through %d, %v", events, through, err)
	}

	// accepted, conflict, accepted, conflict, …
	for i := range 5 {
		if _, err := queue.Enqueue(t.Context(), work(fmt.Sprint("key ", i), 0)); err != nil {
			t.Fatal(err)
		}
		if _, err := queue.Decide(t.Context(), work(fmt.Sprint("key ", i), 1)); err != nil {
			t.Fatal(err)
		}
	}
	if events, through, err = ledger.Read(t.Context(), relay, 0, 10); err != nil || events != nil || through != 0 {
		t.Errorf("committed but not sequenced: %v through %d, %v", events, through, err)
	}
	sequence(t, relay)

	for _, test := range []struct {
		after   ledger.Position
		limit   int
		kinds   []ledger.Kind
		want    []ledger.Position
		through ledger.Position
	}{
		{0, 10, nil, []ledger.Position{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 10},
		{0, 1, nil, []ledger.Position{1}, 1},
		{4, 3, nil, []ledger.Position{5, 6, 7}, 7},
		{8, 100, nil, []ledger.Position{9, 10}, 10},
		{10, 100, nil, nil, 10},
		{0, ledger.MaxPage, []ledger.Kind{}, []ledger.Position{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 10},
		// Of other kinds only the place counts, also where a window holds nothing else.
		{0, 10, []ledger.Kind{ledger.KindConflictRejected}, []ledger.Position{2, 4, 6, 8, 10}, 10},
		{0, 5, []ledger.Kind{ledger.KindConflictRejected}, []ledger.Position{2, 4}, 5},
		{2, 1, []ledger.Kind{ledger.KindConflictRejected}, nil, 3},
		{0, 10, []ledger.Kind{ledger.KindJobFailed}, nil, 10},
		{7, 10, []ledger.Kind{ledger.KindAccepted, ledger.KindConflictRejected}, []ledger.Position{8, 9, 10}, 10},
	} {
		events, through, err := ledger.Read(t.Context(), relay, test.after, test.limit, test.kinds...)
		if err != nil || through != test.through || cmp.Diff(test.want, positions(events)) != "" {
			t.Errorf("Read(%d, %d, %v): %v through %d, %v; want %v through %d",
				test.after, test.limit, test.kinds, positions(events), through, err, test.want, test.through)
		}
	}
	for _, limit := range []int{0, -1, ledger.MaxPage + 1} {
		if _, _, err := ledger.Read(t.Context(), relay, 0, limit); err == nil {
			t.Errorf("a limit of %d is taken", limit)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, through, err := ledger.Read(ctx, relay, 3, 1); err == nil || through != 3 {
		t.Errorf("cancelled: through %d, %v", through, err)
	}
	if head, err := ledger.Head(t.Context(), relay); err != nil || head != 10 {
		t.Errorf("head %d, %v", head, err)
	}
}

func TestReadFillsEveryField(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	at := time.Date(2031, 5, 6, 7, 8, 9, 123456000, time.UTC)
	db.FreezeClock(t, at)
	queue := newQueue(t, db.Pool)
	key := ledger.NewKey("order-0815-of-4711")
	keyed, err := queue.Enqueue(t.Context(), commands.EnqueueOptions{
		Type: "work", Idempotency: &commands.Idempotency{Key: key, Scope: "shop"},
	})
	if err != nil {
		t.Fatal(err)
	}
	keyless, err := queue.Enqueue(t.Context(), commands.EnqueueOptions{Type: "work"})
	if err != nil {
		t.Fatal(err)
	}
	sequence(t, db.Pool)
	// A reader's session may have any time zone.
	err = pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `set local time zone 'Asia/Tokyo'`); err != nil {
			return err
		}
		events, _, err := ledger.Read(t.Context(), tx, 0, 10)
		if err != nil || len(events) != 2 {
			return fmt.Errorf("%d events, %w", len(events), err)
		}
		hash, _ := ledger.Keys{}.Hash("shop", key)
		for i, want := range []ledger.Event{
			{Position: 1, Kind: ledger.KindAccepted, JobID: keyed, Scope: "shop", KeyHash: &hash, KeyPreview: "order-…", RecordedAt: at},
			{Position: 2, Kind: ledger.KindAccepted, JobID: keyless, RecordedAt: at},
		} {
			got := events[i]
			if got.ID == 0 || !json.Valid(got.Body) || got.SequencedAt.IsZero() || got.SequencedAt.Location() != time.UTC {
				t.Errorf("event %+v", got)
			}
			want.ID, want.Body, want.SequencedAt = got.ID, got.Body, got.SequencedAt
			if diff := cmp.Diff(want, got); diff != "" || got.RecordedAt.Location() != time.UTC {
				t.Errorf("event %d (-want +got):\n%s", i, diff)
			}
		}
		if events[0].KeyDigest() != hash.Digest() || events[1].KeyDigest() != "" {
			t.Errorf("digests %q, %q", events[0].KeyDigest(), events[1].KeyDigest())
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestAllPagesThrough(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	queue := newQueue(t, db.Pool)
	const n = 2345 // more than two pages
	batch := slices.Repeat([]commands.EnqueueOptions{{Type: "work"}}, n)
	if _, err := queue.EnqueueMany(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	sequence(t, db.Pool)
	next := ledger.Position(101)
	for event, err := range ledger.All(t.Context(), db.Pool, 100) {
		if err != nil {
			t.Fatal(err)
		}
		if event.Position != next {
			t.Fatalf("position %d, want %d", event.Position, next)
		}
		next++
		if event.Position == 1500 {
			// What is sequenced meanwhile is read too.
			accept(t, queue, 3)
			sequence(t, db.Pool)
		}
	}
	if next != n+4 {
		t.Errorf("ended before %d", next)
	}
	for _, err := range ledger.All(t.Context(), db.Pool, 0) {
		if err != nil {
			t.Error(err)
		}
		break // a reader that has seen enough holds no connection
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	errs := 0
	for _, err := range ledger.All(ctx, db.Pool, 0) {
		if cancel(); err != nil {
			errs++
		}
	}
	if errs != 1 {
		t.Errorf("%d errors after the cancel", errs)
	}
}

// A hole in the ledger is never read over.
func TestReadStopsAtAHole(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	accept(t, newQueue(t, db.Pool), 5)
	sequence(t, db.Pool)
	db.Exec(t, `alter table daybook.ledger_order disable trigger ledger_order_append_only`)
	db.Exec(t, `delete from daybook.ledger_order where position = 3`)
	for after, want := range map[ledger.Position]string{0: "position 4 follows 2", 2: "position 4 follows 2"} {
		events, through, err := ledger.Read(t.Context(), db.Pool, after, 10)
		if err == nil || !strings.Contains(err.Error(), want) || events != nil || through != after {
			t.Errorf("after %d: %d events through %d, %v", after, len(events), through, err)
		}
	}
	if events, _, err := ledger.Read(t.Context(), db.Pool, 3, 10); err != nil || len(events) != 2 {
		t.Errorf("after the hole: %d events, %v", len(events), err)
	}
}
