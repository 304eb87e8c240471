// Package restore_test restores, rewinds, moves and restarts databases under writers and readers: with pg_dump and
// pg_restore into other clusters, from copies of a data folder, and by promotion to another timeline.
package restore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/projections"
	"github.com/daybook-go/daybook/tests/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// patience bounds a failure; nothing waits for it to pass.
const patience = 2 * time.Minute

// build builds the tool.
func build(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "daybook")
	if out, err := exec.Command("go", "build", "-o", path, "github.com/daybook-go/daybook/cmd/daybook").CombinedOutput(); err != nil {
		t.Fatalf("build daybook: %v\n%s", err, out)
	}
	return path
}

// run runs a program and returns its exit code and all that it wrote.
func run(t testing.TB, url, program string, args ...string) (code int, output string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME"), "DATABASE_URL=" + url}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s %s: %v", program, strings.Join(args, " "), err)
	}
	return cmd.ProcessState.ExitCode(), out.String()
}

// ok runs a program that must end well.
func ok(t testing.TB, program string, args ...string) string {
	t.Helper()
	code, output := run(t, "", program, args...)
	if code != 0 {
		t.Fatalf("%s %s: exit code %d\n%s", program, strings.Join(args, " "), code, output)
	}
	return output
}

// enqueue makes so many events, one by one, each its own transaction.
func enqueue(t testing.TB, pool *pgxpool.Pool, n int) {
	t.Helper()
	queue, err := commands.NewQueue(commands.Config{Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	for range n {
		if _, err := queue.Enqueue(t.Context(), commands.EnqueueOptions{Type: "work"}); err != nil {
			t.Fatal(err)
		}
	}
}

const group = "mailer"

func newSubscriber(t testing.TB, pool *pgxpool.Pool) *outbox.Subscriber {
	t.Helper()
	s, err := outbox.NewSubscriber(outbox.Config{
		Pool: pool, ConsumerGroup: group, PollInterval: 5 * time.Millisecond, RetryInterval: 20 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func subscribe(t testing.TB, s *outbox.Subscriber) <-chan *message.Message {
	t.Helper()
	messages, err := s.Subscribe(t.Context(), outbox.TopicAll)
	if err != nil {
		t.Fatal(err)
	}
	return messages
}

// receive acks so many messages, and returns their attributes.
func receive(t testing.TB, messages <-chan *message.Message, n int) []outbox.Attributes {
	t.Helper()
	var got []outbox.Attributes
	for range n {
		select {
		case msg, open := <-messages:
			if !open {
				t.Fatalf("the subscription has ended after %d messages", len(got))
			}
			attributes, err := outbox.AttributesOf(msg)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, attributes)
			msg.Ack()
		case <-time.After(patience):
			t.Fatalf("%d messages came, want %d", len(got), n)
		}
	}
	return got
}

func positions(all []outbox.Attributes) []ledger.Position {
	var got []ledger.Position
	for _, a := range all {
		got = append(got, a.Position)
	}
	return got
}

func series(from, through ledger.Position) []ledger.Position {
	var all []ledger.Position
	for p := from; p <= through; p++ {
		all = append(all, p)
	}
	return all
}

func runner(t testing.TB, p projections.Projection) *projections.Runner {
	t.Helper()
	r, err := projections.NewRunner(p, projections.RunnerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// catchUp folds what there is into a view.
func catchUp(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	if _, err := runner(t, projections.Builtin()[0]).CatchUp(t.Context(), pool, 0); err != nil {
		t.Fatal(err)
	}
}

// wantEqual checks the ledger, bindings and jobs, and the view.
func wantEqual(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	if report, err := ledger.Verify(t.Context(), pool, nil); err != nil || !report.OK {
		t.Errorf("the ledger: %+v, %v", report, err)
	}
	if report, err := commands.Verify(t.Context(), pool, nil); err != nil || !report.OK {
		t.Errorf("bindings and jobs: %+v, %v", report, err)
	}
	if report, err := projections.Verify(t.Context(), pool, projections.Builtin()[0]); err != nil || !report.OK {
		t.Errorf("the view: %+v, %v", report, err)
	}
}

// epochError is the error of a reader that must refuse, and say what to run.
func epochError(t testing.TB, err error) *ledger.EpochError {
	t.Helper()
	var epoch *ledger.EpochError
	if !errors.As(err, &epoch) || !strings.Contains(err.Error(), "daybook doctor") {
		t.Fatalf("error %v, want an *EpochError that names daybook doctor", err)
	}
	return epoch
}

// wantEpochError checks that a reader refuses.
func wantEpochError(t testing.TB, err error) {
	t.Helper()
	epochError(t, err) //nolint:errcheck // it fails the test by itself
}

// one returns the single value that a query answers.
func one[T any](t testing.TB, db ledger.Querier, sql string, args ...any) T {
	t.Helper()
	rows, err := db.Query(context.WithoutCancel(t.Context()), sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	value, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return value
}

func cursorAt(t testing.TB, db ledger.Querier) ledger.Position {
	t.Helper()
	return one[ledger.Position](t, db, `select position from daybook.cursor where name = $1`, fmt.Sprintf("%s/%s", group, outbox.TopicAll))
}
