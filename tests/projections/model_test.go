package projections_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// views are the rows of the built-in views as text, by primary key.
type views struct{ Rates, Keys, Conflicts, Jobs map[string]string }

// modelKey is what the model knows of one key.
type modelKey struct {
	scope, preview, mode, outcome, ended string
	job                                  uuid.UUID
	accepted, replaced, refused, reject  int
	first, last, expires, endedAt        time.Time
	from, to                             ledger.Position
}

// model folds all events of the ledger one by one, in the plainest way there is.
func model(t testing.TB, db *pgtest.DB) views {
	t.Helper()
	rates, firsts := map[string]int{}, map[string]ledger.Position{}
	keys, conflicts := map[ledger.KeyHash]*modelKey{}, map[string]string{}
	for event, err := range ledger.All(t.Context(), db.Pool, 0) {
		if err != nil {
			t.Fatal(err)
		}
		var body struct {
			Queue, Type, Mode     string
			Fields                []string
			ExpiresAt             time.Time `json:"expires_at"`
			BoundAt               time.Time `json:"bound_at"`
			ExistingMode          string    `json:"existing_mode"`
			RequestDigest         string    `json:"request_digest"`
			ExistingRequestDigest string    `json:"existing_request_digest"`
		}
		if err := json.Unmarshal(event.Body, &body); err != nil {
			t.Fatal(err)
		}
		outcome, decision := map[ledger.Kind]string{
			ledger.KindAccepted: "accepted", ledger.KindReplaced: "replaced",
			ledger.KindNonReplaceable: "non_replaceable", ledger.KindConflictRejected: "conflict_rejected",
		}[event.Kind]
		if decision {
			rate := fmt.Sprint(event.RecordedAt.Truncate(time.Minute), event.Scope, body.Queue, body.Type, outcome)
			rates[rate]++
			if rates[rate] == 1 {
				firsts[rate] = event.Position
			}
		}
		if event.Kind == ledger.KindConflictRejected {
			conflicts[fmt.Sprint(event.Position)] = fmt.Sprint(event.RecordedAt, body.BoundAt, body.ExpiresAt, event.JobID,
				event.KeyDigest(), event.Scope, event.KeyPreview, body.Queue, body.Type, body.Mode, body.ExistingMode,
				body.Fields, body.RequestDigest, body.ExistingRequestDigest)
		}
		end, ends := map[ledger.Kind]string{
			ledger.KindBindingExpired: "expired", ledger.KindBindingReleased: "released",
		}[event.Kind]
		if event.KeyHash == nil || !decision && !ends {
			continue
		}
		k := keys[*event.KeyHash]
		if k == nil {
			k = &modelKey{from: event.Position}
			keys[*event.KeyHash] = k
		}
		k.to, k.scope, k.preview = event.Position, event.Scope, event.KeyPreview
		if ends {
			k.ended, k.endedAt = end, event.RecordedAt
			continue
		}
		if k.first.IsZero() {
			k.first = event.RecordedAt
		}
		k.last, k.outcome = event.RecordedAt, outcome
		switch event.Kind {
		case ledger.KindAccepted:
			k.accepted++
			k.job, k.mode, k.expires, k.ended, k.endedAt = event.JobID, body.Mode, body.ExpiresAt, "", time.Time{}
		case ledger.KindReplaced:
			k.replaced++
			k.expires = body.ExpiresAt
		case ledger.KindNonReplaceable:
			k.refused++
		case ledger.KindConflictRejected:
			k.reject++
		}
	}
	v := views{map[string]string{}, map[string]string{}, conflicts, modelJobs(t, db)}
	for rate, count := range rates {
		v.Rates[rate] = fmt.Sprint(count, firsts[rate])
	}
	for hash, k := range keys {
		v.Keys[fmt.Sprintf("%x", hash[:])] = fmt.Sprint(hash.Digest(), k.scope, k.preview, k.mode, k.outcome, k.ended, k.job,
			k.accepted, k.replaced, k.refused, k.reject, k.first, k.last, k.expires, k.endedAt, k.from, k.to)
	}
	return v
}

// stored reads the same from the live tables.
func stored(t testing.TB, db *pgtest.DB) views {
	t.Helper()
	v := views{map[string]string{}, map[string]string{}, map[string]string{}, storedJobs(t, db)}
	utc := func(at *time.Time) time.Time {
		if at == nil {
			return time.Time{}
		}
		return at.UTC()
	}
	each := func(sql string, into []any, do func() error) {
		t.Helper()
		rows, err := db.Pool.Query(t.Context(), sql)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := pgx.ForEachRow(rows, into, do); err != nil {
			t.Fatal(err)
		}
	}

	var (
		minute                      time.Time
		scope, queue, typ, outcome  string
		preview, digest             string
		count                       int
		first, last                 ledger.Position
		hash                        []byte
		job                         uuid.UUID
		mode, ended                 *string
		n                           [4]int
		at                          [4]*time.Time
		fields                      []string
		existing, request, existReq string
	)
	each(`select minute, scope, queue, type, outcome, decisions, first_position from daybook.view_decision_rate`,
		[]any{&minute, &scope, &queue, &typ, &outcome, &count, &first}, func() error {
			v.Rates[fmt.Sprint(minute.UTC(), scope, queue, typ, outcome)] = fmt.Sprint(count, first)
			return nil
		})
	each(`select key_hash, key_digest, scope, key_preview, mode, last_outcome, ended_as, job_id, accepted, replaced,
			non_replaceable, conflicts, first_decision_at, last_decision_at, expires_at, ended_at, first_position, last_position
		from daybook.view_key`,
		[]any{
			&hash, &digest, &scope, &preview, &mode, &outcome, &ended, &job, &n[0], &n[1], &n[2], &n[3],
			&at[0], &at[1], &at[2], &at[3], &first, &last,
		}, func() error {
			endedAs := ""
			if ended != nil {
				endedAs = *ended
			}
			v.Keys[fmt.Sprintf("%x", hash)] = fmt.Sprint(ledger.KeyDigest(digest), scope, preview, *mode, outcome, endedAs, job,
				n[0], n[1], n[2], n[3], utc(at[0]), utc(at[1]), utc(at[2]), utc(at[3]), first, last)
			return nil
		})
	each(`select position, rejected_at, bound_at, expires_at, existing_job_id, key_digest, scope, key_preview, queue, type,
			mode, existing_mode, fields, request_digest, existing_request_digest
		from daybook.view_conflict`,
		[]any{
			&first, &at[0], &at[1], &at[2], &job, &digest, &scope, &preview, &queue, &typ, &mode, &existing, &fields,
			&request, &existReq,
		}, func() error {
			v.Conflicts[fmt.Sprint(first)] = fmt.Sprint(utc(at[0]), utc(at[1]), utc(at[2]), job, ledger.KeyDigest(digest), scope,
				preview, queue, typ, *mode, existing, fields, request, existReq)
			return nil
		})
	return v
}

// modelJob is what the model knows of one job.
type modelJob struct {
	State, Queue, Type           string
	Attempt, Budget              int
	Digest, Scope, Preview       string
	Source                       string
	Accepted, Started, Done, Due time.Time
	First, Last                  ledger.Position
}

// modelJobs is the part of the model that knows jobs.
func modelJobs(t testing.TB, db *pgtest.DB) map[string]string {
	t.Helper()
	jobs := map[uuid.UUID]*modelJob{}
	for event, err := range ledger.All(t.Context(), db.Pool, 0) {
		if err != nil {
			t.Fatal(err)
		}
		state, known := map[ledger.Kind]string{
			ledger.KindAccepted: "waiting", ledger.KindReplaced: "waiting", ledger.KindJobRedriven: "waiting",
			ledger.KindJobReleased: "waiting", ledger.KindJobAttemptFailed: "waiting", ledger.KindJobLeaseExpired: "waiting",
			ledger.KindJobStarted: "active", ledger.KindJobSucceeded: "succeeded", ledger.KindJobFailed: "failed",
			ledger.KindJobCancelled: "cancelled", ledger.KindJobPurged: "purged",
		}[event.Kind]
		if !known {
			continue
		}
		var body struct {
			Queue, Type string
			Attempt     int
			Budget      int       `json:"attempt_budget"`
			RunAt       time.Time `json:"run_at"`
			SourceJobID string    `json:"source_job_id"`
		}
		if err := json.Unmarshal(event.Body, &body); err != nil {
			t.Fatal(err)
		}
		j := jobs[event.JobID]
		if j == nil {
			j = &modelJob{First: event.Position}
			jobs[event.JobID] = j
		}
		j.Last, j.State, j.Queue, j.Type, j.Attempt, j.Budget = event.Position, state, body.Queue, body.Type, body.Attempt, body.Budget
		switch event.Kind {
		case ledger.KindAccepted:
			j.Accepted, j.Digest, j.Scope, j.Preview = event.RecordedAt, string(event.KeyDigest()), event.Scope, event.KeyPreview
		case ledger.KindJobRedriven:
			j.Accepted, j.Source = event.RecordedAt, body.SourceJobID
		}
		j.Due = time.Time{}
		switch state {
		case "waiting":
			j.Due = event.RecordedAt
			if !body.RunAt.IsZero() {
				j.Due = body.RunAt.Truncate(time.Microsecond)
			}
		case "active":
			j.Started = event.RecordedAt
		default:
			j.Done = event.RecordedAt
		}
	}
	texts := map[string]string{}
	for id, j := range jobs {
		texts[id.String()] = fmt.Sprintf("%+v", *j)
	}
	return texts
}

// storedJobs reads the same from the live table.
func storedJobs(t testing.TB, db *pgtest.DB) map[string]string {
	t.Helper()
	rows, err := db.Pool.Query(t.Context(), `
		select job_id, state, queue, type, attempt, attempt_budget, coalesce(key_digest, ''), coalesce(scope, ''),
			coalesce(key_preview, ''), coalesce(source_job_id::text, ''), accepted_at, started_at, finished_at, next_run_at,
			first_position, last_position
		from daybook.view_job`)
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	var id uuid.UUID
	var j modelJob
	var at [4]*time.Time
	_, err = pgx.ForEachRow(rows, []any{
		&id, &j.State, &j.Queue, &j.Type, &j.Attempt, &j.Budget, &j.Digest, &j.Scope, &j.Preview,
		&j.Source, &at[0], &at[1], &at[2], &at[3], &j.First, &j.Last,
	}, func() error {
		for i, to := range []*time.Time{&j.Accepted, &j.Started, &j.Done, &j.Due} {
			*to = time.Time{}
			if at[i] != nil {
				*to = at[i].UTC()
			}
		}
		texts[id.String()] = fmt.Sprintf("%+v", j)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// mustEqualModel fails the test where the live tables are not what the events say.
func mustEqualModel(t testing.TB, db *pgtest.DB) {
	t.Helper()
	if diff := cmp.Diff(model(t, db), stored(t, db)); diff != "" {
		t.Errorf("the views are not the fold of the events (-want +got):\n%.4000s", diff)
	}
}
