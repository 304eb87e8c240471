package restore_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"

	"github.com/daybook-go/daybook/cmd/daybook/localpg"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/projections"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// A cluster is restored to a point in time, from a copy of its data folder, while its readers run: what has committed since is gone,
// and the timeline is another one. Each of them stops, none skips what comes in the place of what it has read, and after the
// doctor each goes on.
func TestPointInTimeRestore(t *testing.T) {
	t.Parallel()
	cluster := pgtest.NewCluster(t, map[string]string{"restore_command": "false"})
	db := cluster.New(t)
	enqueue(t, db.Pool, 5)
	subscriber := newSubscriber(t, db.Pool)
	taken := subscribe(t, subscriber)
	receive(t, taken, 3)
	// The next message is there when the acknowledgement of the one before has been taken.
	<-taken
	catchUp(t, db.Pool)
	if err := subscriber.Close(); err != nil {
		t.Fatal(err)
	}
	if at := cursorAt(t, db.Pool); at != 3 {
		t.Fatalf("the cursor is at %d, want 3", at)
	}

	// The backup.
	if err := cluster.Stop(t.Context(), localpg.Fast); err != nil {
		t.Fatal(err)
	}
	backup := filepath.Join(filepath.Dir(cluster.DataDir), "backup")
	copyFolder(t, cluster.DataDir, backup)
	restart(t, cluster, db)

	// Life goes on: events 6 and 7, which nobody will remember. All are delivered; a projection and a relay run, too.
	enqueue(t, db.Pool, 2)
	subscriber = newSubscriber(t, db.Pool)
	messages := subscribe(t, subscriber)
	receive(t, messages, 4)
	projector, err := outbox.NewProjector(outbox.ProjectorConfig{Pool: db.Pool, RetryInterval: 20 * time.Millisecond}, runner(t, projections.Builtin()[0]))
	if err != nil {
		t.Fatal(err)
	}
	published := make(chan *message.Message, 100)
	relay, err := outbox.NewRelay(outbox.RelayConfig{Pool: db.Pool, Name: "broker", Publisher: collecting(published), RetryInterval: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	projectorEnded, relayEnded := make(chan error, 1), make(chan error, 1)
	go func() { projectorEnded <- projector.Run(t.Context()) }()
	go func() { relayEnded <- relay.Run(t.Context()) }()
	for range 7 {
		<-published
	}
	pgtest.WaitFor(t, patience, func() bool { return cursorAt(t, db.Pool) == 7 }, "the cursor is at 7")

	// The restore.
	if err := cluster.Stop(t.Context(), localpg.Immediate); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(cluster.DataDir); err != nil {
		t.Fatal(err)
	}
	copyFolder(t, backup, cluster.DataDir)
	newTimeline(t, cluster)
	restart(t, cluster, db)

	// Whoever runs notices by himself, at the latest when he has lost his connection.
	for range messages {
		t.Error("a message came after the restore")
	}
	if epoch := epochError(t, subscriber.Err()); epoch.Found.Timeline != epoch.Recorded.Timeline+1 {
		t.Errorf("%+v", epoch)
	}
	wantEpochError(t, <-projectorEnded)
	wantEpochError(t, <-relayEnded)
	wantFindings(t, db.Pool, ledger.FindingOtherTimeline)
	d, err := ledger.Diagnose(t.Context(), db.Pool, 7)
	if err != nil || !d.NeedsEpoch() || len(d.Findings) != 2 || d.Findings[1].Kind != ledger.FindingSeenBeyond {
		t.Errorf("%+v, %v", d, err)
	}

	_, carried := afterRestore(t, db.Pool)
	for _, c := range carried {
		if c.Position != c.FromPosition {
			t.Errorf("%+v: it was restored with the ledger", c)
		}
	}
	wantFindings(t, db.Pool)
	enqueue(t, db.Pool, 3)
	got := receive(t, subscribe(t, newSubscriber(t, db.Pool)), 5)
	if diff := cmp.Diff(series(4, 8), positions(got)); diff != "" {
		t.Errorf("positions (-want +got):\n%s", diff)
	}
	catchUp(t, db.Pool)
	wantEqual(t, db.Pool)
}

// A promotion to another timeline, where replicas are known to be synchronous: nobody has to be asked.
func TestFollowTimelines(t *testing.T) {
	t.Parallel()
	cluster := pgtest.NewCluster(t, map[string]string{"restore_command": "false"})
	db := cluster.New(t)
	enqueue(t, db.Pool, 2)
	subscriber := newSubscriber(t, db.Pool)
	messages := subscribe(t, subscriber)
	receive(t, messages, 2)
	// An acknowledgement counts once the cursor has moved; before that the two would rightly come again.
	pgtest.WaitFor(t, patience, func() bool { return cursorAt(t, db.Pool) == 2 }, "the cursor is at 2")
	if err := ledger.FollowTimelines(t.Context(), db.AsRole(t, "daybook_operator"), true); err != nil {
		t.Fatal(err)
	}
	newTimeline(t, cluster)
	if err := cluster.Stop(t.Context(), localpg.Fast); err != nil {
		t.Fatal(err)
	}
	restart(t, cluster, db)
	wantFindings(t, db.Pool)
	enqueue(t, db.Pool, 2)
	if diff := cmp.Diff(series(3, 4), positions(receive(t, messages, 2))); diff != "" {
		t.Errorf("positions (-want +got):\n%s", diff)
	}
	if err := subscriber.Err(); err != nil {
		t.Error(err)
	}
	// Switched off again, the next promotion is not followed, and this one is behind us.
	if err := ledger.FollowTimelines(t.Context(), db.Pool, false); err != nil {
		t.Fatal(err)
	}
	if d := diagnose(t, db.Pool); len(d.Findings) != 0 || d.Recorded.Timeline != 2 {
		t.Errorf("%+v", d)
	}
}

// collecting is a publisher that hands over what it gets.
type collecting chan<- *message.Message

func (c collecting) Publish(_ string, messages ...*message.Message) error {
	for _, msg := range messages {
		c <- msg
	}
	return nil
}

func (collecting) Close() error { return nil }

// newTimeline makes the next start one that ends recovery on a new timeline, as that of a restored backup or a promoted replica does.
func newTimeline(t *testing.T, cluster *pgtest.Cluster) {
	t.Helper()
	// The server, which may be another user, only has to be able to remove it.
	if err := os.WriteFile(filepath.Join(cluster.DataDir, "recovery.signal"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
}

// copyFolder copies a data folder with its owner and its rights.
func copyFolder(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		t.Fatalf("copy %s: %v\n%s", from, err, out)
	}
}

func restart(t *testing.T, cluster *pgtest.Cluster, db *pgtest.DB) {
	t.Helper()
	if err := cluster.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	// What the pool has is dead, each connection for the first who takes it.
	db.Pool.Reset()
	pgtest.WaitFor(t, patience, func() bool {
		var recovering bool
		return db.Pool.QueryRow(t.Context(), `select pg_is_in_recovery()`).Scan(&recovering) == nil && !recovering
	}, "the server is back, and takes writes")
}
