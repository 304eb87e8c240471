package ledger

import (
	"context"
	_ "embed" // the statements
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

var (
	//go:embed sql/beat.sql
	beatSQL string
	//go:embed sql/forget_runner.sql
	forgetRunnerSQL string
)

// BeatInterval is how often a process says that its runners are there.
const BeatInterval = 5 * time.Second

// RunnerKind says what kind of runner it is.
type RunnerKind string

// The kinds of runners.
const (
	RunnerSubscriber RunnerKind = "subscriber"
	RunnerProjection RunnerKind = "projection"
	RunnerRelay      RunnerKind = "relay"
)

// RunnerStatus is when a runner was last heard of. Several processes may run it; Host and PID are those of the one that was
// heard of last.
type RunnerStatus struct {
	// Name is that of the runner's cursor.
	Name string
	Kind RunnerKind
	Host string
	PID  int32
	// BeatAge is how long ago it was heard of. A runner says so every [BeatInterval], whether there is anything to do or
	// not; one that has not for several times as long is dead, or has lost the database, whatever its lag says.
	BeatAge time.Duration
}

// Beat says that this process, host and pid, is there to run the runners of those names. Package outbox calls it every
// [BeatInterval] for whatever it runs, in a statement of its own; one that runs projections in another way may, too. The names
// are those of cursors, each once. The role needs what daybook_relay has.
func Beat(ctx context.Context, db Querier, kind RunnerKind, host string, pid int, names ...string) error {
	rows, err := db.Query(ctx, beatSQL, names, string(kind), host, pid)
	if err == nil {
		rows.Close()
		err = rows.Err()
	}
	if err != nil {
		return fmt.Errorf("daybook: say that a runner is there: %w", err)
	}
	return nil
}

// ForgetRunner forgets a runner that is not to run any more, so that nobody misses it; false where it was not known. Its cursor
// stays. Members of daybook_operator or daybook_relay may call it.
func ForgetRunner(ctx context.Context, db Querier, name string) (bool, error) {
	rows, err := db.Query(ctx, forgetRunnerSQL, name)
	if err != nil {
		return false, fmt.Errorf("daybook: forget runner %q: %w", name, err)
	}
	forgotten, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return false, fmt.Errorf("daybook: forget runner %q: %w", name, err)
	}
	return len(forgotten) > 0, nil
}
