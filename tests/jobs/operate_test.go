package jobs_test

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
)

// A job can be cancelled until it is finished. Who holds it learns so from the fence; its key stays bound.
func TestCancel(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t)
	for name, test := range map[string]struct {
		reach func(uuid.UUID) *commands.ClaimedJob
		state commands.JobState // where it cannot be cancelled
	}{
		"scheduled": {reach: func(uuid.UUID) *commands.ClaimedJob { return nil }},
		"ready": {reach: func(id uuid.UUID) *commands.ClaimedJob {
			if err := queue.RunJobNow(t.Context(), id, operator); err != nil {
				t.Fatal(err)
			}
			return nil
		}},
		"active": {reach: func(id uuid.UUID) *commands.ClaimedJob {
			if err := queue.RunJobNow(t.Context(), id, operator); err != nil {
				t.Fatal(err)
			}
			job := claimFrom(t, queue, "active", 1)[0]
			return &job
		}},
		"succeeded": {reach: func(id uuid.UUID) *commands.ClaimedJob {
			if err := queue.RunJobNow(t.Context(), id, operator); err != nil {
				t.Fatal(err)
			}
			complete(t, queue, claimFrom(t, queue, "succeeded", 1)...)
			return nil
		}, state: commands.JobSucceeded},
	} {
		o := idempotent(name, `1`, 24*time.Hour)
		o.Queue = name
		o.RunAt = noon.Add(time.Hour)
		id := accept(t, queue, o).JobID
		held := test.reach(id)
		events := kinds(t, db.Pool, id)
		err := queue.CancelJob(t.Context(), id, operator)
		if test.state != "" {
			var state *commands.JobStateError
			if !errors.As(err, &state) || state.State != test.state || state.JobID != id {
				t.Errorf("%s: error %v, want a *JobStateError", name, err)
			}
			wantKinds(t, db.Pool, events, id)
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		wantState(t, db.Pool, id, commands.JobCancelled)
		wantKinds(t, db.Pool, append(events, ledger.KindJobCancelled), id)
		body := lastBody(t, db.Pool, ledger.KindJobCancelled)
		diff(t, name+": actor and reason", [2]any{operator.Actor, operator.Reason}, [2]any{body["actor"], body["reason"]})
		if held != nil {
			done, err := queue.CompleteJobs(t.Context(), held.Claim)
			if err != nil || done[0] {
				t.Errorf("%s: a cancelled job was completed (%v)", name, err)
			}
		}
		db.AdvanceClock(t, time.Hour)
		claimFrom(t, queue, name, 0)
		db.AdvanceClock(t, -time.Hour)
		wantOutcome(t, decide(t, queue, o), commands.OutcomeReplayed)
	}
}

func TestOperateOnNothing(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t)
	if err := queue.CancelJob(t.Context(), uuid.New(), operator); !errors.Is(err, commands.ErrJobNotFound) {
		t.Errorf("cancel: %v", err)
	}
	if err := queue.RunJobNow(t.Context(), uuid.New(), operator); !errors.Is(err, commands.ErrJobNotFound) {
		t.Errorf("run now: %v", err)
	}
	long := strings.Repeat("x", 1001)
	id := accept(t, queue, work(`1`)).JobID
	for _, test := range []struct {
		act   commands.Act
		field string
	}{
		{commands.Act{Reason: "r"}, "actor"},
		{commands.Act{Actor: "a"}, "reason"},
		{commands.Act{Actor: long[:201], Reason: "r"}, "actor"},
		{commands.Act{Actor: "a", Reason: long}, "reason"},
	} {
		_, releaseErr := queue.ReleaseKey(t.Context(), "", "0123456789ab", test.act)
		_, purgeErr := queue.Purge(t.Context(), "default", test.act, "r")
		_, _, redriveErr := queue.RedriveJob(t.Context(), id, test.act, "r")
		_, _, pageErr := queue.RedriveJobs(t.Context(), commands.RedriveOptions{}, test.act, "r")
		for _, err := range []error{
			queue.CancelJob(t.Context(), id, test.act), queue.RunJobNow(t.Context(), id, test.act), releaseErr, purgeErr, redriveErr, pageErr,
		} {
			wantInvalid(t, err, test.field)
		}
	}
	diff(t, "what is written", footprint{Jobs: 1, Events: 1}, footprintOf(t, db.Pool))
}

// Run-now ends every kind of wait, and only a wait. Keys other than a debounce's stay bound.
func TestRunNow(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t)
	o := idempotent("k", `1`, 24*time.Hour)
	o.RunAt = noon.Add(time.Hour)
	id := accept(t, queue, o).JobID
	runNow := func() error { return queue.RunJobNow(t.Context(), id, operator) }
	if err := runNow(); err != nil {
		t.Fatal(err)
	}
	first := claim(t, queue, 1)[0]
	var state *commands.JobStateError
	if err := runNow(); !errors.As(err, &state) || state.State != commands.JobActive {
		t.Fatalf("error %v, want a *JobStateError", err)
	}
	fail(t, queue, first)
	claim(t, queue, 0)
	if err := runNow(); err != nil {
		t.Fatal(err)
	}
	diff(t, "attempt", 2, claim(t, queue, 1)[0].Attempt)
	wantOutcome(t, decide(t, queue, o), commands.OutcomeReplayed)
	wantKinds(t, db.Pool, []ledger.Kind{
		ledger.KindAccepted, ledger.KindJobReleased, ledger.KindJobStarted, ledger.KindJobAttemptFailed, ledger.KindJobReleased,
		ledger.KindJobStarted,
	})
}

// A key is released by its digest or by more of its hash, in its scope and nowhere else.
func TestReleaseKey(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t)
	o := idempotent("k", `1`, time.Hour)
	hash := func() string {
		return query1[string](t, db.Pool, "select encode(key_hash, 'hex') from daybook.binding where alias_of is null")
	}
	for _, digits := range []int{12, 14, 63, 64} {
		first := accept(t, queue, o).JobID
		digest := ledger.KeyDigest(hash()[:digits])
		if digits%2 == 1 {
			_, err := queue.ReleaseKey(t.Context(), "", digest, operator)
			wantInvalid(t, err, "key_digest")
			digest = digest[:digits-1]
		}
		if _, err := queue.ReleaseKey(t.Context(), "elsewhere", digest, operator); !errors.Is(err, commands.ErrKeyNotFound) {
			t.Errorf("error %v, want ErrKeyNotFound", err)
		}
		got, err := queue.ReleaseKey(t.Context(), "", digest, operator)
		if err != nil {
			t.Fatal(err)
		}
		diff(t, "the job that owned it", first, got)
		body := lastBody(t, db.Pool, ledger.KindBindingReleased)
		diff(t, "audited", [3]any{operator.Actor, operator.Reason, first.String()}, [3]any{body["actor"], body["reason"], body["job_id"]})
		wantState(t, db.Pool, first, commands.JobReady)
		if _, err := queue.ReleaseKey(t.Context(), "", digest, operator); !errors.Is(err, commands.ErrKeyNotFound) {
			t.Errorf("error %v, want ErrKeyNotFound", err)
		}
	}
	for _, digest := range []string{"", "0123456789", "0123456789ag", strings.Repeat("00", 33)} {
		_, err := queue.ReleaseKey(t.Context(), "", ledger.KeyDigest(digest), operator)
		wantInvalid(t, err, "key_digest")
	}
	_, err := queue.ReleaseKey(t.Context(), " ", "0123456789ab", operator)
	wantInvalid(t, err, "scope")
	diff(t, "bindings left", int64(0), footprintOf(t, db.Pool).Bindings)
}

// Two keys of a scope with the same digest: only more of the hash tells them apart. In another scope there is no doubt.
func TestReleaseAmbiguousKey(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t)
	var ids []uuid.UUID
	hashes := []string{strings.Repeat("ab", 31) + "00", strings.Repeat("ab", 31) + "ff"}
	for i, scope := range []string{"a", "a", "b"} {
		o := idempotent(string(rune('x'+i)), `1`, time.Hour)
		o.Idempotency.Scope = scope
		id := accept(t, queue, o).JobID
		ids = append(ids, id)
	}
	for i, hash := range append(hashes, strings.Repeat("ab", 31)+"01") {
		raw, err := hex.DecodeString(hash)
		if err != nil {
			t.Fatal(err)
		}
		db.Exec(t, "update daybook.binding set key_hash = $2 where job_id = $1", ids[i], raw)
	}
	short := ledger.KeyDigest(hashes[0][:12])
	events := kinds(t, db.Pool)
	if _, err := queue.ReleaseKey(t.Context(), "a", short, operator); !errors.Is(err, commands.ErrKeyAmbiguous) {
		t.Fatalf("error %v, want ErrKeyAmbiguous", err)
	}
	diff(t, "events", events, kinds(t, db.Pool))
	for _, test := range []struct {
		scope  string
		digest ledger.KeyDigest
		want   uuid.UUID
	}{
		{"b", short, ids[2]},
		{"a", ledger.KeyDigest(hashes[1]), ids[1]},
		{"a", short, ids[0]},
	} {
		got, err := queue.ReleaseKey(t.Context(), test.scope, test.digest, operator)
		if err != nil {
			t.Fatal(err)
		}
		diff(t, "the job that owned it", test.want, got)
	}
}

// After a rotation of secrets one key has several rows; each finds it, and all go with it.
func TestReleaseKeyOfRotatedSecrets(t *testing.T) {
	t.Parallel()
	db, _ := newFrozen(t)
	before, err := ledger.NewHMACKeys([]byte(strings.Repeat("1", 32)), []byte(strings.Repeat("2", 32)))
	if err != nil {
		t.Fatal(err)
	}
	queue, err := commands.NewQueue(commands.Config{Pool: db.Pool, Keys: before})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		id := accept(t, queue, idempotent("k", `1`, time.Hour)).JobID
		alias := query1[string](t, db.Pool, "select encode(key_hash, 'hex') from daybook.binding where alias_of is not null")
		got, err := queue.ReleaseKey(t.Context(), "", ledger.KeyDigest(alias[:12]), operator)
		if err != nil {
			t.Fatal(err)
		}
		diff(t, "the job that owned it", id, got)
		diff(t, "rows left", int64(0), footprintOf(t, db.Pool).Bindings)
	}
	wantKinds(t, db.Pool, []ledger.Kind{
		ledger.KindAccepted, ledger.KindBindingReleased, ledger.KindAccepted, ledger.KindBindingReleased,
	})
}
