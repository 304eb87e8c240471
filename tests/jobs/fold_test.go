package jobs_test

import (
	"context"
	"encoding/hex"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/ledger"
)

// life is where a job is, as its events tell it.
type life struct {
	State   string // waiting, active, succeeded, failed, cancelled, or purged
	Attempt int
}

// fold is what the events of a ledger add up to.
type fold struct {
	jobs     map[uuid.UUID]life
	bindings map[string]uuid.UUID // key hash → job
	replaced map[string]int       // key hash → how often
	counts   map[ledger.Kind]int
}

// apply adds an event, and says what is wrong where it cannot follow those before it.
func (f *fold) apply(kind ledger.Kind, job uuid.UUID, key string) error {
	f.counts[kind]++
	was, known := f.jobs[job]
	owner, bound := f.bindings[key]
	waiting := known && was.State == "waiting"
	unfinished := waiting || known && was.State == "active"
	var legal bool
	switch kind {
	case ledger.KindAccepted:
		legal = !known && (key == "" || !bound)
		f.jobs[job] = life{State: "waiting"}
		if key != "" {
			f.bindings[key] = job
			f.replaced[key] = 0
		}
	case ledger.KindJobRedriven:
		legal = !known
		f.jobs[job] = life{State: "waiting"}
	case ledger.KindReplaced:
		legal = waiting && was.Attempt == 0 && owner == job
		f.replaced[key]++
	case ledger.KindConflictRejected, ledger.KindNonReplaceable:
		legal = bound && owner == job
	case ledger.KindBindingExpired, ledger.KindBindingReleased:
		legal = bound && owner == job
		delete(f.bindings, key)
		delete(f.replaced, key)
	case ledger.KindJobStarted:
		legal = waiting
		f.jobs[job] = life{"active", was.Attempt + 1}
	case ledger.KindJobSucceeded:
		legal = was.State == "active"
		f.jobs[job] = life{"succeeded", was.Attempt}
	case ledger.KindJobAttemptFailed, ledger.KindJobLeaseExpired:
		legal = was.State == "active"
		f.jobs[job] = life{"waiting", was.Attempt}
	case ledger.KindJobFailed:
		// Of a lease that ran out, after job.lease_expired.
		legal = unfinished && was.Attempt > 0
		f.jobs[job] = life{"failed", was.Attempt}
	case ledger.KindJobCancelled:
		legal = unfinished
		f.jobs[job] = life{"cancelled", was.Attempt}
	case ledger.KindJobReleased:
		legal = waiting
	case ledger.KindJobPurged:
		legal = waiting
		f.jobs[job] = life{"purged", was.Attempt}
	default:
		return fmt.Errorf("unknown kind %s", kind)
	}
	if !legal {
		return fmt.Errorf("%s of job %s, key %.12s: the job was %+v, the key bound to %s", kind, job, key, was, owner)
	}
	return nil
}

// checkLedger folds the events and compares with what the tables say: no job without its events, none lost, no binding
// without its job. Only jobs that the events call finished may be missing: they may have been pruned. Of the events only
// those of one scope and those of no key count, where a scope is given.
func checkLedger(t fataler, db querier, scope string) *fold {
	t.Helper()
	f := &fold{map[uuid.UUID]life{}, map[string]uuid.UUID{}, map[string]int{}, map[ledger.Kind]int{}}
	var (
		kind   ledger.Kind
		job    uuid.UUID
		key    []byte
		id     int64
		broken []error
	)
	each(t, db, `
		select event_id, kind, job_id, key_hash from daybook.event
		where $1 = '' or scope is null or scope = $1
		order by event_id`, []any{&id, &kind, &job, &key}, func() {
		if err := f.apply(kind, job, hex.EncodeToString(key)); err != nil {
			broken = append(broken, fmt.Errorf("event %d: %w", id, err))
		}
	}, scope)
	if len(broken) > 0 {
		t.Fatalf("%d events do not follow from those before, the first: %v", len(broken), broken[0])
	}

	jobs := map[uuid.UUID]life{}
	var state string
	var attempt int
	each(t, db, "select job_id, state, attempt from daybook.job", []any{&job, &state, &attempt}, func() {
		if state == "scheduled" || state == "ready" {
			state = "waiting"
		}
		jobs[job] = life{state, attempt}
	})
	want := map[uuid.UUID]life{}
	for id, l := range f.jobs {
		_, kept := jobs[id]
		if l.State == "waiting" || l.State == "active" || kept {
			want[id] = l
		}
	}
	diff(t, "jobs, by their events and by the table", want, jobs)

	bindings := map[string]uuid.UUID{}
	replaced := map[string]int{}
	var times int
	each(t, db, `
		select key_hash, job_id, replaced from daybook.binding
		where alias_of is null and ($1 = '' or scope = $1)`, []any{&key, &job, &times}, func() {
		bindings[hex.EncodeToString(key)] = job
		replaced[hex.EncodeToString(key)] = times
		if _, ok := jobs[job]; !ok {
			t.Fatalf("key %x is bound to job %s, which is not there", key, job)
		}
	}, scope)
	diff(t, "bindings, by their events and by the table", f.bindings, bindings)
	diff(t, "replacements, by their events and by the table", f.replaced, replaced)
	return f
}

func each(t fataler, db querier, sql string, into []any, do func(), args ...any) {
	t.Helper()
	rows, err := db.Query(context.Background(), sql, args...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pgx.ForEachRow(rows, into, func() error { do(); return nil }); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}
