package jobs_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// The table of DESIGN §4.3, and what an expired binding of each mode means: for each owner of a key, and each way it
// can be asked for again. "=" is the same request where the mode is the same, "≠" one with another payload.
//
// A debounced request replaces without comparing, so for it both are one.
const pairTable = `
owner        binding  job       idempotency=       idempotency≠       throttle=          throttle≠          debounce
idempotency  live     pending   replayed           conflict_rejected  conflict_rejected  conflict_rejected  incompatible_key_mode
idempotency  live     active    replayed           conflict_rejected  conflict_rejected  conflict_rejected  incompatible_key_mode
idempotency  live     finished  replayed           conflict_rejected  conflict_rejected  conflict_rejected  incompatible_key_mode
idempotency  expired  pending   accepted           accepted           accepted           accepted           accepted
idempotency  expired  active    accepted           accepted           accepted           accepted           accepted
idempotency  expired  finished  accepted           accepted           accepted           accepted           accepted
throttle     live     pending   conflict_rejected  conflict_rejected  coalesced          conflict_rejected  incompatible_key_mode
throttle     live     active    conflict_rejected  conflict_rejected  coalesced          conflict_rejected  incompatible_key_mode
throttle     live     finished  conflict_rejected  conflict_rejected  coalesced          conflict_rejected  incompatible_key_mode
throttle     expired  pending   accepted           accepted           accepted           accepted           accepted
throttle     expired  active    accepted           accepted           accepted           accepted           accepted
throttle     expired  finished  accepted           accepted           accepted           accepted           accepted
debounce     live     pending   conflict_rejected  conflict_rejected  conflict_rejected  conflict_rejected  replaced
debounce     live     active    conflict_rejected  conflict_rejected  conflict_rejected  conflict_rejected  not_pending
debounce     live     finished  conflict_rejected  conflict_rejected  conflict_rejected  conflict_rejected  not_pending
debounce     expired  pending   accepted           accepted           accepted           accepted           window_elapsed_pending
debounce     expired  active    accepted           accepted           accepted           accepted           accepted
debounce     expired  finished  accepted           accepted           accepted           accepted           accepted
`

// pair is one cell of the table.
type pair struct {
	owner, binding, job, request string
	want                         string
}

func (p pair) String() string {
	return fmt.Sprintf("%s %s, job %s, asked %s", p.binding, p.owner, p.job, p.request)
}

func pairs() []pair {
	lines := strings.Split(strings.TrimSpace(pairTable), "\n")
	head := strings.Fields(lines[0])
	var all []pair
	for _, line := range lines[1:] {
		cells := strings.Fields(line)
		for i := 3; i < len(cells); i++ {
			all = append(all, pair{cells[0], cells[1], cells[2], head[i], cells[i]})
		}
	}
	return all
}

// windows of a live and of an expired binding, when the clock has moved on by pairsLater.
const pairsLater = 2 * time.Minute

func (p pair) window() time.Duration {
	return map[string]time.Duration{"live": time.Hour, "expired": time.Minute}[p.binding]
}

func (p pair) options(mode, payload string) commands.EnqueueOptions {
	o := work(payload)
	// Its queue says what becomes of the owner.
	o.Queue = p.job
	key := ledger.NewKey(p.String())
	switch mode {
	case "idempotency":
		o.Idempotency = &commands.Idempotency{Key: key, TTL: p.window()}
	case "throttle":
		o.Throttle = &commands.Throttle{Key: key, Window: p.window()}
	case "debounce":
		// With a run time of its own, so that a live window can have a job that has begun.
		o.Debounce = &commands.Debounce{Key: key, Window: p.window()}
		o.RunAt = noon
	}
	return o
}

func (p pair) ownerOptions() commands.EnqueueOptions { return p.options(p.owner, `1`) }

func (p pair) requestOptions() commands.EnqueueOptions {
	mode, different := strings.CutSuffix(strings.TrimSuffix(p.request, "="), "≠")
	if different {
		return p.options(mode, `2`)
	}
	return p.options(mode, `1`)
}

// ownPairs accepts the owner of each pair and leads its job to where the table wants it.
func ownPairs(t *testing.T, db *pgtest.DB, queue *commands.Queue, all []pair) []uuid.UUID {
	t.Helper()
	requests := make([]commands.EnqueueOptions, len(all))
	for i, p := range all {
		requests[i] = p.ownerOptions()
	}
	results, err := queue.EnqueueMany(context.Background(), requests)
	if err != nil {
		t.Fatal(err)
	}
	owners := make([]uuid.UUID, len(all))
	for i, result := range results {
		wantOutcome(t, result, commands.OutcomeAccepted)
		owners[i] = result.JobID
	}
	claimFrom(t, queue, "active", len(all)/3)
	complete(t, queue, claimFrom(t, queue, "finished", len(all)/3)...)
	db.AdvanceClock(t, pairsLater)
	return owners
}

// check compares an answer with the table.
func (p pair) check(t *testing.T, ordinal int, owner uuid.UUID, got commands.EnqueueResult) {
	t.Helper()
	want := commands.EnqueueResult{JobID: owner, Outcome: commands.EnqueueOutcome(p.want), BoundAt: noon, ExpiresAt: noon.Add(p.window())}
	switch p.want {
	case "accepted":
		if got.JobID == owner {
			t.Errorf("%s: new work has the owner's ID", p)
		}
		want.JobID = got.JobID
		want.BoundAt = noon.Add(pairsLater)
		want.ExpiresAt = noon.Add(pairsLater + p.window())
	case "replaced":
		want.ExpiresAt = noon.Add(pairsLater + p.window())
	case commands.ReasonIncompatibleKeyMode, commands.ReasonNotPending, commands.ReasonWindowElapsedPending:
		want.Outcome = commands.OutcomeNonReplaceable
		want.Reason = p.want
	case "conflict_rejected":
		p.checkConflict(t, ordinal, owner, got.Conflict)
		want.Conflict = got.Conflict
	}
	if got != want {
		t.Errorf("%s: got\n%+v, want\n%+v", p, got, want)
	}
}

func (p pair) checkConflict(t *testing.T, ordinal int, owner uuid.UUID, got *commands.EnqueueIdempotencyConflictError) {
	t.Helper()
	if got == nil {
		t.Errorf("%s: a conflict without a conflict", p)
		return
	}
	var fields []string
	mode := strings.TrimRight(p.request, "=≠")
	if mode != p.owner {
		fields = append(fields, "mode")
	}
	if strings.HasSuffix(p.request, "≠") {
		fields = append(fields, "payload")
	}
	if p.owner == "debounce" {
		fields = append(fields, "run_at")
	}
	if (mode == "idempotency") != (p.owner == "idempotency") {
		fields = append(fields, "ttl", "window")
	}
	diff(t, p.String()+": fields", fields, got.Fields)
	state := map[string]commands.JobState{"pending": commands.JobReady, "active": commands.JobActive, "finished": commands.JobSucceeded}
	if got.JobID != owner || got.Mode != commands.Mode(p.owner) || got.State != state[p.job] || got.Ordinal != ordinal ||
		!got.BoundAt.Equal(noon) || !got.ExpiresAt.Equal(noon.Add(p.window())) || got.TwinOrdinal != -1 {
		t.Errorf("%s: conflict %+v", p, got)
	}
}

// All pairs of modes, live and expired, the job pending, active and finished: one by one.
func TestPairs(t *testing.T) {
	t.Parallel()
	for _, w := range ways() {
		if w.name == "EnqueueManyTx" {
			continue // a conflict is an error there; see TestPairsInOneBatch
		}
		t.Run(w.name, func(t *testing.T) {
			t.Parallel()
			db, queue := newFrozen(t)
			all := pairs()
			owners := ownPairs(t, db, queue, all)
			for i, p := range all {
				result, err := w.ask(db, queue, p.requestOptions())
				if err != nil {
					t.Fatal(err)
				}
				p.check(t, 0, owners[i], result)
			}
		})
	}
}

// All pairs mixed in one batch, with requests without a key between them; the ordinals of the conflicts are theirs.
func TestPairsInOneBatch(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t)
	all := pairs()
	owners := ownPairs(t, db, queue, all)
	var requests []commands.EnqueueOptions
	for _, p := range all {
		requests = append(requests, work(`"between"`), p.requestOptions())
	}

	// All or nothing: every conflict is listed, and nothing else is written.
	before := footprintOf(t, db.Pool)
	_, err := queue.EnqueueMany(t.Context(), requests)
	var many *commands.EnqueueManyConflictError
	if !asConflicts(err, &many) {
		t.Fatalf("error %v, want an *EnqueueManyConflictError", err)
	}
	next := 0
	for i, p := range all {
		if p.want != "conflict_rejected" {
			continue
		}
		p.checkConflict(t, 2*i+1, owners[i], many.Conflicts[next])
		next++
	}
	diff(t, "conflicts", next, len(many.Conflicts))
	after := footprintOf(t, db.Pool)
	before.Events += int64(next)
	before.Rejections += int64(next)
	diff(t, "what is written", before, after)

	// Item by item.
	results, err := queue.DecideMany(t.Context(), requests)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range all {
		wantOutcome(t, results[2*i], commands.OutcomeAccepted)
		p.check(t, 2*i+1, owners[i], results[2*i+1])
	}
}
