package commands_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// seen is all that a list of requests led to, with jobs numbered in the order in which they were answered.
type seen struct {
	Answers []seenAnswer
	// Written are the rows of a table, sorted; of events those of each key, in their order.
	Written map[string][]string
}

type seenAnswer struct {
	Outcome        commands.EnqueueOutcome
	Job            string
	Reason         string
	Bound, Expires time.Time
	Conflict       string
}

// §4.5: single and batch calls give equal answers and write the same: one by one, in batches of one, all at once, and
// split anyhow.
func TestSingleAndBatchAgree(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	steerClock(t, db, noon)
	queue := newQueue(t, db.Pool)
	rapid.Check(t, func(t *rapid.T) {
		before := rapid.SliceOfN(rapid.Custom(anyRequest), 0, 5).Draw(t, "before")
		passed := rapid.SampledFrom([]time.Duration{0, time.Hour, 90 * time.Minute}).Draw(t, "passed")
		requests := rapid.SliceOfN(rapid.Custom(anyRequest), 1, 12).Draw(t, "requests")
		cuts := rapid.SliceOfN(rapid.IntRange(1, 4), len(requests), len(requests)).Draw(t, "cuts")
		ones := slices.Repeat([]int{1}, len(requests))

		want := decideAll(t, db, queue, before, passed, requests, nil)
		for name, sizes := range map[string][]int{"batches of one": ones, "one batch": {len(requests)}, "split": cuts} {
			if diff := cmp.Diff(want, decideAll(t, db, queue, before, passed, requests, sizes)); diff != "" {
				t.Fatalf("%s (-single +batch):\n%s", name, diff)
			}
		}
	})
}

// decideAll runs the requests in a transaction that is rolled back: in batches of these sizes, or one by one where there are none.
func decideAll(t *rapid.T, db *pgtest.DB, queue *commands.Queue, before []asked, passed time.Duration, requests []asked, sizes []int) seen {
	t.Helper()
	ctx := context.Background()
	tx, err := db.Pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	numbers := strings.NewReplacer()
	var known []string
	number := func(id uuid.UUID) string {
		if i := slices.Index(known, id.String()); i >= 0 {
			return known[i+1]
		}
		known = append(known, id.String(), fmt.Sprint("job ", len(known)/2+1))
		numbers = strings.NewReplacer(known...)
		return known[len(known)-1]
	}
	got := seen{Written: map[string][]string{}}
	answered := func(result commands.EnqueueResult) {
		a := seenAnswer{Outcome: result.Outcome, Job: number(result.JobID), Reason: result.Reason, Bound: result.BoundAt, Expires: result.ExpiresAt}
		if c := result.Conflict; c != nil {
			a.Conflict = fmt.Sprint(c.Scope, c.KeyPreview, c.KeyDigest, c.Mode, number(c.JobID), c.State, c.BoundAt, c.ExpiresAt, c.Fields,
				c.RequestDigest, c.ExistingRequestDigest, c.TwinOrdinal)
		}
		got.Answers = append(got.Answers, a)
	}
	for _, a := range before {
		answered(decideTx(t, queue, tx, a.options("scope")))
	}
	if _, err := tx.Exec(ctx, "update public.steered set at = at + $1::interval", passed); err != nil {
		t.Fatal(err)
	}
	if sizes == nil {
		for _, a := range requests {
			answered(decideTx(t, queue, tx, a.options("scope")))
		}
	}
	for _, size := range sizes {
		size = min(size, len(requests))
		batch := make([]commands.EnqueueOptions, size)
		for i := range batch {
			batch[i] = requests[i].options("scope")
		}
		requests = requests[size:]
		results, err := queue.DecideManyTx(ctx, tx, batch)
		if err != nil {
			t.Fatal(err)
		}
		for _, result := range results {
			answered(result)
		}
	}
	got.read(t, tx, func(text string) string { return numbers.Replace(text) })
	return got
}

// read reads what is written.
func (s *seen) read(t *rapid.T, tx pgx.Tx, numbered func(string) string) {
	t.Helper()
	for _, table := range []string{"binding", "job", "rejection"} {
		for _, row := range query[string](t, tx, "select to_jsonb(r)::text from daybook."+table+" as r") {
			s.Written[table] = append(s.Written[table], numbered(row))
		}
		slices.Sort(s.Written[table])
	}
	type row struct{ Key, Event string }
	for _, r := range collect[row](t, tx, `
		select coalesce(encode(key_hash, 'hex'), ''), concat_ws(' ', kind, job_id, scope, key_preview, recorded_at, body)
		from daybook.event order by event_id`) {
		s.Written["events of "+r.Key] = append(s.Written["events of "+r.Key], numbered(r.Event))
	}
}
