package jobs_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
)

// An application may do all of it, with the rights of daybook_app alone: it can touch no table.
func TestApplicationMayDoAllOfIt(t *testing.T) {
	t.Parallel()
	db, _ := newFrozen(t)
	pool := db.AsRole(t, "daybook_app")
	queue := newQueue(t, pool)
	accept(t, queue, debounced("d", `1`, commands.Debounce{Window: time.Hour}))
	source := failed(t, queue, idempotent("i", `1`, time.Hour))
	if _, _, err := queue.RedriveJob(t.Context(), source, operator, "r"); err != nil {
		t.Fatal(err)
	}
	jobs := claim(t, queue, 1)
	if held, _, err := queue.HeartbeatJobs(t.Context(), time.Minute, claims(jobs)...); err != nil || !held[0] {
		t.Fatal(held, err)
	}
	complete(t, queue, jobs...)
	waiting := accept(t, queue, debounced("w", `1`, commands.Debounce{Window: time.Hour})).JobID
	if err := queue.RunJobNow(t.Context(), waiting, operator); err != nil {
		t.Fatal(err)
	}
	if err := queue.CancelJob(t.Context(), waiting, operator); err != nil {
		t.Fatal(err)
	}
	hash, _ := ledger.Keys{}.Hash(commands.DefaultScope, ledger.NewKey("i"))
	if _, err := queue.ReleaseKey(t.Context(), "", hash.Digest(), operator); err != nil {
		t.Fatal(err)
	}
	if n, err := queue.Purge(t.Context(), "default", operator, "r"); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	diff(t, "pruned", 3, maintain(t, queue, commands.MaintainOptions{Retention: -1}).PrunedJobs)
	checkLedger(t, db.Pool, "")
	for _, table := range []string{"job", "binding", "rejection", "event", "purge", "redrive"} {
		_, err := pool.Exec(t.Context(), "select from daybook."+table)
		wantDenied(t, err)
	}
}

// An operator may act on jobs and keys, and neither enqueue nor work.
func TestOperatorMayActOnJobs(t *testing.T) {
	t.Parallel()
	db, app := newFrozen(t)
	queue := newQueue(t, db.AsRole(t, "daybook_operator"))
	source := failed(t, app, work(`1`))
	waiting := accept(t, app, debounced("w", `1`, commands.Debounce{Window: time.Hour})).JobID
	_, _, redriveErr := queue.RedriveJobs(t.Context(), commands.RedriveOptions{}, operator, "r")
	accept(t, app, idempotent("i", `1`, time.Hour))
	hash, _ := ledger.Keys{}.Hash(commands.DefaultScope, ledger.NewKey("i"))
	_, releaseErr := queue.ReleaseKey(t.Context(), "", hash.Digest(), operator)
	_, purgeErr := queue.Purge(t.Context(), "default", operator, "r")
	for name, err := range map[string]error{
		"run now": queue.RunJobNow(t.Context(), accept(t, app, work(`1`)).JobID, operator), "redrive": redriveErr,
		"release key": releaseErr, "purge": purgeErr,
		"cancel": queue.CancelJob(t.Context(), accept(t, app, work(`1`)).JobID, operator),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := queue.Enqueue(t.Context(), work(`1`))
	wantDenied(t, err)
	_, err = queue.ClaimJobs(t.Context(), commands.ClaimOptions{Worker: "w"})
	wantDenied(t, err)
	_, err = queue.FailJob(t.Context(), commands.Claim{JobID: source}, "x")
	wantDenied(t, err)
	_, err = queue.CompleteJobs(t.Context(), commands.Claim{JobID: waiting})
	wantDenied(t, err)
}

func wantDenied(t fataler, err error) {
	t.Helper()
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || pgErr.Code != "42501" {
		t.Fatalf("error %v, want one of insufficient privilege", err)
	}
}
