package jobs_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
)

func asConflicts(err error, many **commands.EnqueueManyConflictError) bool {
	return errors.As(err, many)
}

// The same conflicting request a thousand times, in every way, is one event; so is a refused debounce. A second,
// different one is a second event.
func TestRejectionIsRecordedOnce(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t)
	accept(t, queue, idempotent("k", `1`, time.Hour))
	conflicting := idempotent("k", `2`, time.Hour)
	refused := debounced("k", `2`, commands.Debounce{Window: time.Hour})
	before := len(kinds(t, db.Pool))

	const times = 1000
	_, conflict := queue.Enqueue(t.Context(), conflicting)
	for i := range times / 10 {
		for range 3 {
			wantOutcome(t, decide(t, queue, conflicting), commands.OutcomeConflictRejected)
			wantOutcome(t, decide(t, queue, refused), commands.OutcomeNonReplaceable)
		}
		if err := queue.RecordRejection(t.Context(), conflict); err != nil {
			t.Fatal(err)
		}
		err := queue.InTx(t.Context(), func(tx pgx.Tx) error {
			_, err := queue.EnqueueTx(t.Context(), tx, conflicting)
			return err
		})
		var got *commands.EnqueueIdempotencyConflictError
		if !errors.As(err, &got) {
			t.Fatalf("error %v, want a conflict", err)
		}
		// Rolled back, with the event where there was one.
		tx := begin(t, db.Pool)
		for _, o := range []commands.EnqueueOptions{conflicting, refused} {
			if _, err := queue.DecideTx(t.Context(), tx, o); err != nil {
				t.Fatal(err)
			}
		}
		rollback(t, tx)
		_, err = queue.EnqueueMany(t.Context(), []commands.EnqueueOptions{work(`1`), conflicting, conflicting, refused})
		var many *commands.EnqueueManyConflictError
		if !errors.As(err, &many) || len(many.Conflicts) != 2 {
			t.Fatalf("error %v, want two conflicts", err)
		}
		if i == 0 {
			wantKinds(t, db.Pool, []ledger.Kind{ledger.KindAccepted, ledger.KindConflictRejected, ledger.KindNonReplaceable})
		}
	}
	diff(t, "events", before+2, len(kinds(t, db.Pool)))

	wantOutcome(t, decide(t, queue, idempotent("k", `3`, time.Hour)), commands.OutcomeConflictRejected)
	wantOutcome(t, decide(t, queue, debounced("k", `3`, commands.Debounce{Window: time.Hour})), commands.OutcomeNonReplaceable)
	diff(t, "events", before+4, len(kinds(t, db.Pool)))
}

// A refusal belongs to its binding: against the next owner of the key the same request is recorded anew.
func TestRejectionGoesWithItsBinding(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t)
	for range 2 {
		accept(t, queue, throttled("k", `1`, time.Hour))
		for range 2 {
			wantOutcome(t, decide(t, queue, throttled("k", `2`, time.Hour)), commands.OutcomeConflictRejected)
			wantOutcome(t, decide(t, queue, debounced("k", `2`, commands.Debounce{Window: time.Hour})), commands.OutcomeNonReplaceable)
		}
		db.AdvanceClock(t, time.Hour)
	}
	wantKinds(t, db.Pool, []ledger.Kind{
		ledger.KindAccepted, ledger.KindConflictRejected, ledger.KindNonReplaceable,
		ledger.KindBindingExpired, ledger.KindAccepted, ledger.KindConflictRejected, ledger.KindNonReplaceable,
	})
	maintain(t, queue, commands.MaintainOptions{})
	diff(t, "left", footprint{Jobs: 2, Events: 8}, footprintOf(t, db.Pool))
}

// Where one of the two requests has a field that the other lacks, the field is named, whichever it is.
func TestMissingFieldIsNamed(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t)
	later := noon.Add(time.Hour)
	for field, give := range map[string]func(*commands.EnqueueOptions){
		"payload":           func(o *commands.EnqueueOptions) { o.Payload = json.RawMessage(`{"a": null}`) },
		"priority":          func(o *commands.EnqueueOptions) { o.Priority = 1 },
		"concurrency_key":   func(o *commands.EnqueueOptions) { o.ConcurrencyKey = "c" },
		"tags":              func(o *commands.EnqueueOptions) { o.Tags = []string{"t"} },
		"retry_policy":      func(o *commands.EnqueueOptions) { o.RetryPolicy = commands.FixedRetry{} },
		"run_at":            func(o *commands.EnqueueOptions) { o.RunAt = later },
		"deadline":          func(o *commands.EnqueueOptions) { o.Deadline = later },
		"execution_timeout": func(o *commands.EnqueueOptions) { o.ExecutionTimeout = time.Second },
	} {
		for _, stored := range []bool{true, false} {
			for mode, request := range map[string]func(key string) commands.EnqueueOptions{
				"idempotency": func(key string) commands.EnqueueOptions { return idempotent(key, `{}`, time.Hour) },
				"throttle":    func(key string) commands.EnqueueOptions { return throttled(key, `{}`, time.Hour) },
			} {
				name := field + " " + mode
				if stored {
					name += " stored"
				}
				without, with := request(name), with(request(name), give)
				first, second := without, with
				if stored {
					first, second = with, without
				}
				accept(t, queue, first)
				result := decide(t, queue, second)
				wantOutcome(t, result, commands.OutcomeConflictRejected)
				diff(t, name, []string{field}, result.Conflict.Fields)
				diff(t, name+", in the event", any([]any{field}), lastBody(t, db.Pool, ledger.KindConflictRejected)["fields"])
			}
		}
	}
}

// A conflict's ordinal in a batch that mixes all modes and requests without a key; with a twin, the twin's.
func TestOrdinalsInMixedBatch(t *testing.T) {
	t.Parallel()
	_, queue := newFrozen(t)
	owner := accept(t, queue, throttled("owned", `1`, time.Hour)).JobID
	batch := []commands.EnqueueOptions{
		0: work(`1`),
		1: debounced("debounced", `1`, commands.Debounce{Window: time.Hour}),
		2: throttled("throttled", `1`, time.Hour),
		3: idempotent("idempotent", `1`, time.Hour),
		4: throttled("owned", `2`, time.Hour),
		5: work(`1`),
		6: idempotent("throttled", `1`, time.Hour),
		7: debounced("debounced", `2`, commands.Debounce{Window: time.Hour}),
		8: debounced("idempotent", `1`, commands.Debounce{Window: time.Hour}),
		9: idempotent("idempotent", `2`, time.Hour),
	}
	wantOrdinals := func(conflicts []*commands.EnqueueIdempotencyConflictError, withdrawn bool) {
		t.Helper()
		type place struct{ Ordinal, Twin int }
		var got []place
		for _, c := range conflicts {
			got = append(got, place{c.Ordinal, c.TwinOrdinal})
		}
		want := []place{{4, -1}, {6, -1}, {9, -1}}
		if withdrawn {
			want = []place{{4, -1}, {6, 2}, {9, 3}}
		}
		diff(t, "ordinals", want, got)
		diff(t, "the owner", owner, conflicts[0].JobID)
	}
	_, err := queue.EnqueueMany(t.Context(), batch)
	var many *commands.EnqueueManyConflictError
	if !errors.As(err, &many) {
		t.Fatalf("error %v, want an *EnqueueManyConflictError", err)
	}
	wantOrdinals(many.Conflicts, true)

	results, err := queue.DecideMany(t.Context(), batch)
	if err != nil {
		t.Fatal(err)
	}
	var conflicts []*commands.EnqueueIdempotencyConflictError
	var outcomes []commands.EnqueueOutcome
	for _, result := range results {
		outcomes = append(outcomes, result.Outcome)
		if result.Conflict != nil {
			conflicts = append(conflicts, result.Conflict)
		}
	}
	wantOrdinals(conflicts, false)
	diff(t, "outcomes", []commands.EnqueueOutcome{
		"accepted", "accepted", "accepted", "accepted", "conflict_rejected", "accepted", "conflict_rejected", "replaced",
		"non_replaceable", "conflict_rejected",
	}, outcomes)
	diff(t, "the debounced twin", results[1].JobID, results[7].JobID)
}

// A digest proves that two requests are the same, and never that they differ: where the stored one has another version,
// the fields decide.
func TestDigestOfAnotherVersion(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t)
	for name, test := range map[string]struct {
		request func(payload string) commands.EnqueueOptions
		want    commands.EnqueueOutcome
	}{
		"idempotency": {func(payload string) commands.EnqueueOptions { return idempotent("i", payload, time.Hour) }, commands.OutcomeReplayed},
		"throttle":    {func(payload string) commands.EnqueueOptions { return throttled("t", payload, time.Hour) }, commands.OutcomeCoalesced},
	} {
		t.Run(name, func(t *testing.T) {
			accept(t, queue, test.request(`{"a": 1, "b": "\u00e9"}`))
			db.Exec(t, `update daybook.binding set request_digest = '\x02' || substring(request_digest from 2)`)
			before := footprintOf(t, db.Pool)
			for _, w := range ways() {
				result, err := w.ask(db, queue, test.request(`{"b": "é", "a": 1.0}`))
				if err != nil {
					t.Fatal(err)
				}
				wantOutcome(t, result, test.want)
			}
			diff(t, "what is written", before, footprintOf(t, db.Pool))
			result := decide(t, queue, test.request(`{"a": 2}`))
			wantOutcome(t, result, commands.OutcomeConflictRejected)
			diff(t, "fields", []string{"payload"}, result.Conflict.Fields)
		})
	}
}
