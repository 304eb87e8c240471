package restore_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/projections"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// A real dump, restored into a fresh cluster whose transaction ids are far behind, with five events undelivered and seven new ones,
// some before the doctor has come and some after: readers refuse until then, and get all twelve once, in order.
func TestDumpAndRestore(t *testing.T) {
	t.Parallel()
	daybook := build(t)
	old := pgtest.NewCluster(t, nil)
	db := old.New(t)
	// Transaction ids that the new cluster has not reached.
	db.Exec(t, `do $$ begin for i in 1 .. 5000 loop perform pg_current_xact_id(); commit; end loop; end $$`)
	enqueue(t, db.Pool, 3)
	catchUp(t, db.Pool)
	subscriber := newSubscriber(t, db.Pool)
	delivered := receive(t, subscribe(t, subscriber), 3)
	if diff := cmp.Diff(series(1, 3), positions(delivered)); diff != "" {
		t.Fatalf("positions (-want +got):\n%s", diff)
	}
	pgtest.WaitFor(t, patience, func() bool { return cursorAt(t, db.Pool) == 3 }, "the cursor is at 3")
	if err := subscriber.Close(); err != nil {
		t.Fatal(err)
	}
	// Five are undelivered. One of them stands behind a gap, which will never be filled in the new cluster, because its
	// transaction is not in the dump; and the last two are not sequenced yet.
	enqueue(t, db.Pool, 2)
	holder, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Rollback(t.Context()) }()
	if _, err := holder.Exec(t.Context(), `
		with xid as materialized (select pg_current_xact_id())
		insert into daybook.event (recorded_at, kind, body) select clock_timestamp(), 'job.started', '{}' from xid`); err != nil {
		t.Fatal(err)
	}
	enqueue(t, db.Pool, 1)
	if _, err := ledger.Sequence(t.Context(), db.Pool); err != nil {
		t.Fatal(err)
	}
	enqueue(t, db.Pool, 2)
	if n := one[int64](t, db.Pool, `select count(*) from daybook.sequencer_gap`); n == 0 {
		t.Fatal("there is no gap")
	}

	dump := filepath.Join(t.TempDir(), "dump")
	ok(t, old.Binaries.Path("pg_dump"), "--format=custom", "--file="+dump, db.URL)
	roles := filepath.Join(t.TempDir(), "roles.sql")
	ok(t, old.Binaries.Path("pg_dumpall"), "--roles-only", "--file="+roles, "--dbname="+old.URL())

	fresh := pgtest.NewCluster(t, nil)
	restored := fresh.New(t, pgtest.Empty())
	// The role that gives the orders is there already, and psql goes on.
	ok(t, fresh.Binaries.Path("psql"), "--quiet", "--file="+roles, fresh.URL())
	ok(t, fresh.Binaries.Path("pg_restore"), "--exit-on-error", "--dbname="+restored.URL, dump)

	wantFindings(t, restored.Pool, ledger.FindingOtherCluster, ledger.FindingForeignXIDs)

	// Writers are faster than whoever looks after the readers.
	enqueue(t, restored.Pool, 4)
	refused := newSubscriber(t, restored.Pool)
	_, err = refused.Subscribe(t.Context(), outbox.TopicAll)
	epoch := epochError(t, err)
	if epoch.Recorded.SystemIdentifier == epoch.Found.SystemIdentifier || epoch.CurrentEpoch != 1 {
		t.Errorf("%+v", epoch)
	}
	_, err = runner(t, projections.Builtin()[0]).CatchUp(t.Context(), restored.Pool, 0)
	wantEpochError(t, err)

	code, output := run(t, restored.URL, daybook, "doctor")
	for _, want := range []string{
		"other_cluster: epoch 1 began in the cluster with system identifier",
		"do: make sure that nobody writes to the old database any more; stop the readers, then daybook doctor --after-restore --carry-cursors",
	} {
		if !strings.Contains(output, want) {
			t.Errorf("daybook doctor does not say %q", want)
		}
	}
	if code != 4 {
		t.Errorf("exit code %d, want 4", code)
	}
	t.Logf("daybook doctor:\n%s", output)
	code, output = run(t, restored.URL, daybook, "doctor", "--after-restore")
	if code != 4 || !strings.Contains(output, "cursor_old_epoch, cursor mailer/") || strings.Contains(output, "carried:") {
		t.Errorf("exit code %d without cursors carried along\n%s", code, output)
	}
	_, err = refused.Subscribe(t.Context(), outbox.TopicAll)
	wantEpochError(t, err)
	code, output = run(t, restored.URL, daybook, "doctor", "--carry-cursors")
	if code != 0 || !strings.Contains(output, "carried: mailer/") || !strings.Contains(output, "well: epoch 2") {
		t.Errorf("exit code %d\n%s", code, output)
	}
	t.Logf("afterwards:\n%s", output)

	enqueue(t, restored.Pool, 3)
	got := receive(t, subscribe(t, newSubscriber(t, restored.Pool)), 12)
	if diff := cmp.Diff(series(4, 15), positions(got)); diff != "" {
		t.Errorf("positions (-want +got):\n%s", diff)
	}
	seen := map[uuid.UUID]bool{}
	for _, a := range append(delivered, got...) {
		if seen[a.ID] {
			t.Errorf("position %d has an id that was there before", a.Position)
		}
		seen[a.ID] = true
	}
	pgtest.WaitFor(t, patience, func() bool { return cursorAt(t, restored.Pool) == 15 }, "the cursor is at 15")
	if head, err := ledger.Head(t.Context(), restored.Pool); err != nil || head != 15 {
		t.Errorf("the head is %d, %v", head, err)
	}
	catchUp(t, restored.Pool)
	wantEqual(t, restored.Pool)
	if swept := one[int64](t, restored.Pool, `select e.swept + s.swept from daybook.epoch as e cross join daybook.sequencer as s`); swept != 0 {
		t.Errorf("%d events were swept", swept)
	}
	pgtest.WaitFor(t, patience, func() bool {
		_, err := ledger.Sequence(t.Context(), restored.Pool)
		return err == nil && one[int64](t, restored.Pool, `select count(*) from daybook.sequencer_gap`) == 0
	}, "the gap of the old cluster is forgotten")
}

// A copy of the database in the same cluster is another database, and what reads it must be told so, too.
func TestCopyInTheSameCluster(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	enqueue(t, db.Pool, 3)
	receive(t, subscribe(t, newSubscriber(t, db.Pool)), 3)
	pgtest.WaitFor(t, patience, func() bool { return cursorAt(t, db.Pool) == 3 }, "the cursor is at 3")
	copied := pgtest.New(t, pgtest.Empty())
	dump := filepath.Join(t.TempDir(), "dump")
	binaries := pgtest.NewCluster(t, nil).Binaries
	ok(t, binaries.Path("pg_dump"), "--format=custom", "--file="+dump, db.URL)
	ok(t, binaries.Path("pg_restore"), "--exit-on-error", "--dbname="+copied.URL, dump)

	_, err := newSubscriber(t, copied.Pool).Subscribe(t.Context(), outbox.TopicAll)
	if epoch := epochError(t, err); epoch.Recorded.DatabaseOID == epoch.Found.DatabaseOID {
		t.Errorf("%+v", epoch)
	}
	wantFindings(t, copied.Pool, ledger.FindingOtherDatabase)
	// The original does not mind.
	wantFindings(t, db.Pool)
	afterRestore(t, copied.Pool)
	wantFindings(t, copied.Pool)
	enqueue(t, copied.Pool, 1)
	receive(t, subscribe(t, newSubscriber(t, copied.Pool)), 1)
}
