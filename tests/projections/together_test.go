package projections_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/projections"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// patience bounds a failure; nothing waits for it to pass.
const patience = time.Minute

// groupOf returns the group of some projections.
func groupOf(t testing.TB, all ...projections.Projection) *projections.Group {
	t.Helper()
	var runners []*projections.Runner
	for _, p := range all {
		runners = append(runners, runner(t, p))
	}
	group, err := projections.NewGroup(runners...)
	if err != nil {
		t.Fatal(err)
	}
	return group
}

// projector returns one that folds a group together.
func projector(t testing.TB, config outbox.ProjectorConfig, group *projections.Group) *outbox.Projector {
	t.Helper()
	config.PollInterval, config.RetryInterval = 10*time.Millisecond, 10*time.Millisecond
	p, err := outbox.NewGroupProjector(config, group)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// run runs a projector until the function that it returns is called, which returns what Run returned.
func run(t testing.TB, p *outbox.Projector) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-ended
	})
	t.Cleanup(func() { _ = stop() })
	return stop
}

// placeOf returns where a projection's cursor is; -1 where it has none.
func placeOf(t testing.TB, db *pgtest.DB, name string) ledger.Position {
	t.Helper()
	return queryOne[ledger.Position](t, db, `select coalesce(max(c.position), -1) from daybook.cursor as c where c.name = $1`,
		projections.CursorName(name))
}

func waitPlace(t testing.TB, db *pgtest.DB, want ledger.Position, names ...string) {
	t.Helper()
	for _, name := range names {
		pgtest.WaitFor(t, patience, func() bool { return placeOf(t, db, name) == want }, "%s at position %d", name, want)
	}
}

// Projectors with the same projections, with some of them, together and alone, at once; folds that fail again and again in
// ways that may pass; events that come all the time; and a rebuild of each view. Every event counts once in every view.
func TestTogetherEqualsTheFolds(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.MaxConns(20))
	all := projections.Builtin()
	unreliable := func(some ...projections.Projection) *projections.Group {
		var group []projections.Projection
		for _, p := range some {
			group = append(group, flaky(p, 0.05))
		}
		return groupOf(t, group...)
	}
	apart, err := outbox.NewProjector(outbox.ProjectorConfig{Pool: db.AsRole(t, "daybook_relay"), RangeSize: 13}, runner(t, all[0]), runner(t, all[3]))
	if err != nil {
		t.Fatal(err)
	}
	var stops []func() error
	for _, p := range []*outbox.Projector{
		projector(t, outbox.ProjectorConfig{Pool: db.Pool, RangeSize: 7}, unreliable(all...)),
		projector(t, outbox.ProjectorConfig{Pool: db.Pool, RangeSize: 40, PollOnly: true}, unreliable(all...)),
		projector(t, outbox.ProjectorConfig{Pool: db.AsRole(t, "daybook_relay"), RangeSize: 20}, unreliable(all[1], all[2])),
		projector(t, outbox.ProjectorConfig{Pool: db.Pool, RangeSize: 100}, unreliable(all[0], all[2], all[3])),
		apart,
	} {
		stops = append(stops, run(t, p))
	}
	story := newStoryteller(1, 25)
	for range 20 {
		story.tell(t, db, 60)
	}
	for _, p := range all {
		rebuild(t, db, p, projections.RebuildConfig{BatchSize: 100})
		story.tell(t, db, 60)
	}
	for _, p := range all {
		waitPlace(t, db, 20*60+60*4, p.Name)
	}
	for _, stop := range stops {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}
	mustEqualModel(t, db)
}

// counting counts what is sent over the connections of a pool.
type counting struct {
	mu     sync.Mutex
	counts map[string]int
}

// traced returns the option that lets a pool count.
func (c *counting) traced() pgtest.Option {
	c.counts = map[string]int{}
	return pgtest.PoolConfig(func(config *pgxpool.Config) { config.ConnConfig.Tracer = c })
}

func (c *counting) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, word := range []string{"begin", "commit", "rollback"} {
		if data.SQL == word {
			c.counts[word]++
		}
	}
	if strings.Contains(data.SQL, "daybook.read_events") {
		c.counts["read"]++
	}
	return ctx
}

func (c *counting) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c *counting) got() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	got := map[string]int{}
	for word, n := range c.counts {
		got[word] = n
	}
	clear(c.counts)
	return got
}

// Ten ranges are read once and committed once each, for all four views; apart it is that for each view.
func TestLedgerIsReadOnceForAll(t *testing.T) {
	t.Parallel()
	const events, size = 1000, 100
	measure := func(t *testing.T, start func(config outbox.ProjectorConfig) *outbox.Projector) map[string]int {
		t.Helper()
		var sent counting
		db := pgtest.New(t, sent.traced())
		newStoryteller(1, 30).tell(t, db, events)
		// So that each is opened, and only its events are left to do.
		for _, p := range projections.Builtin() {
			if _, err := runner(t, p).Open(t.Context(), db.Pool); err != nil {
				t.Fatal(err)
			}
		}
		sent.got()
		p := start(outbox.ProjectorConfig{Pool: db.Pool, RangeSize: size, PollOnly: true, ProbeInterval: -1})
		stop := run(t, p)
		for _, p := range projections.Builtin() {
			waitPlace(t, db, events, p.Name)
		}
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		statements := sent.got()
		mustEqualModel(t, db)
		return statements
	}
	together := measure(t, func(config outbox.ProjectorConfig) *outbox.Projector {
		return projector(t, config, builtinGroup(t))
	})
	if diff := cmp.Diff(map[string]int{"read": events / size, "begin": events / size, "commit": events / size}, together); diff != "" {
		t.Errorf("together (-want +got):\n%s", diff)
	}
	apart := measure(t, func(config outbox.ProjectorConfig) *outbox.Projector {
		var handlers []outbox.RangeHandler
		for _, p := range projections.Builtin() {
			handlers = append(handlers, runner(t, p))
		}
		p, err := outbox.NewProjector(config, handlers...)
		if err != nil {
			t.Fatal(err)
		}
		return p
	})
	const views = 4
	if diff := cmp.Diff(map[string]int{"read": views * events / size, "begin": views * events / size, "commit": views * events / size}, apart); diff != "" {
		t.Errorf("apart (-want +got):\n%s", diff)
	}
}

// One of a group cannot fold an event, in whatever way: it stops before it, named with position and reason, and the others
// go on with what comes.
func TestOneOfAGroupFails(t *testing.T) {
	t.Parallel()
	const events, bad, more = 300, 137, 40
	errBad := errors.New("cannot make sense of it")
	ways := map[string]func(context.Context, pgx.Tx, ledger.Event) error{
		"said so": func(_ context.Context, _ pgx.Tx, event ledger.Event) error {
			return projections.BadEvent(event, errBad)
		},
		"not named": func(context.Context, pgx.Tx, ledger.Event) error { return errBad },
		"panic":     func(context.Context, pgx.Tx, ledger.Event) error { panic(errBad) },
		"refused by PostgreSQL": func(ctx context.Context, tx pgx.Tx, _ ledger.Event) error {
			_, err := tx.Exec(ctx, `select 1/0`)
			return errors.Join(errBad, err)
		},
		"rows left open": func(ctx context.Context, tx pgx.Tx, _ ledger.Event) error {
			_, err := tx.Query(ctx, `select generate_series(1, 100)`) //nolint:sqlclosecheck // that it is left open is the case
			return errors.Join(errBad, err)
		},
	}
	for way, fail := range ways {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			story := newStoryteller(1, 20)
			story.tell(t, db, events)
			failing := builtin(t, "view_key")
			fold := failing.Fold
			failing.Kinds = nil // so that the bad one is sure to be seen
			failing.Fold = func(ctx context.Context, tx pgx.Tx, all []ledger.Event) error {
				for _, event := range all {
					if event.Position == bad {
						return fail(ctx, tx, event)
					}
				}
				kinds := builtin(t, "view_key").Kinds
				all = slices.DeleteFunc(slices.Clone(all), func(e ledger.Event) bool { return !slices.Contains(kinds, e.Kind) })
				if len(all) == 0 {
					return nil
				}
				return fold(ctx, tx, all)
			}
			good := []string{"view_conflict", "view_decision_rate", "view_job"}
			p := projector(t, outbox.ProjectorConfig{Pool: db.Pool, RangeSize: 64},
				groupOf(t, failing, builtin(t, good[0]), builtin(t, good[1]), builtin(t, good[2])))
			stop := run(t, p)
			pgtest.WaitFor(t, patience, func() bool { return len(p.Failed()) == 1 }, "the failing projection has stopped")
			story.tell(t, db, more)
			waitPlace(t, db, events+more, good...)
			failed := p.Failed()
			if len(failed) != 1 || failed[0].Projection != "view_key" || failed[0].After != bad-1 || failed[0].Through != bad ||
				way != "panic" && !errors.Is(failed[0], errBad) {
				t.Errorf("failed: %v", failed)
			}
			if got := placeOf(t, db, "view_key"); got != bad-1 {
				t.Errorf("the failing projection is at %d, want %d", got, bad-1)
			}
			var stopped *outbox.RangeError
			if err := stop(); !errors.As(err, &stopped) || stopped != failed[0] {
				t.Errorf("Run returned %v", err)
			}
			// Repaired, it goes on where it stopped, and joins the others.
			waitAndStop(t, db, groupOf(t, projections.Builtin()...), events+more)
			mustEqualModel(t, db)
		})
	}
}

// waitAndStop runs a group until it has come to a position.
func waitAndStop(t testing.TB, db *pgtest.DB, group *projections.Group, position ledger.Position) {
	t.Helper()
	stop := run(t, projector(t, outbox.ProjectorConfig{Pool: db.Pool, RangeSize: 64}, group))
	waitPlace(t, db, position, group.Names()...)
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// witness notes which transactions fold what.
type witness struct {
	mu    sync.Mutex
	folds map[string]map[ledger.Position]string // by projection and last position of the fold: the transaction
}

// watch returns the projection with a fold that notes it, and first does what before says.
func (w *witness) watch(p projections.Projection, before func()) projections.Projection {
	fold := p.Fold
	p.Fold = func(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
		if before != nil {
			before()
		}
		var xid string
		if err := tx.QueryRow(ctx, `select pg_current_xact_id()::text`).Scan(&xid); err != nil {
			return err
		}
		w.mu.Lock()
		if w.folds == nil {
			w.folds = map[string]map[ledger.Position]string{}
		}
		if w.folds[p.Name] == nil {
			w.folds[p.Name] = map[ledger.Position]string{}
		}
		w.folds[p.Name][events[len(events)-1].Position] = xid
		w.mu.Unlock()
		return fold(ctx, tx, events)
	}
	return p
}

// in returns the transaction in which a projection folded up to a position.
func (w *witness) in(name string, position ledger.Position) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.folds[name][position]
}

// One of three is new, and far behind. While it is held up the others go on; it catches up by itself, and then all three
// are one transaction again.
func TestOneThatIsBehindJoins(t *testing.T) {
	t.Parallel()
	const before, meanwhile, size = 1500, 200, 50
	db := pgtest.New(t)
	story := newStoryteller(1, 30)
	story.tell(t, db, before)
	ahead := []string{"view_conflict", "view_decision_rate"}
	if _, err := groupOf(t, builtin(t, ahead[0]), builtin(t, ahead[1])).CatchUp(t.Context(), db.Pool, 0); err != nil {
		t.Fatal(err)
	}

	var w witness
	release := make(chan struct{})
	group := groupOf(t, w.watch(builtin(t, "view_key"), func() { <-release }),
		w.watch(builtin(t, ahead[0]), nil), w.watch(builtin(t, ahead[1]), nil))
	stop := run(t, projector(t, outbox.ProjectorConfig{Pool: db.Pool, RangeSize: size}, group))
	story.tell(t, db, meanwhile)
	waitPlace(t, db, before+meanwhile, ahead...)
	if got := placeOf(t, db, "view_key"); got != 0 {
		t.Errorf("the new one is at %d already", got)
	}
	close(release)
	waitPlace(t, db, before+meanwhile, "view_key")

	// A conflict is an event of all three.
	joined := func() bool {
		next := head(t, db) + 1
		db.Exec(t, `
			insert into daybook.event (recorded_at, job_id, key_hash, kind, scope, key_preview, body)
			select e.recorded_at, e.job_id, e.key_hash, e.kind, e.scope, e.key_preview, e.body
			from daybook.event as e
			where e.kind = 'enqueue.conflict_rejected'
			limit 1`)
		waitPlace(t, db, next, group.Names()...)
		xid := w.in("view_key", next)
		return xid != "" && xid == w.in(ahead[0], next) && xid == w.in(ahead[1], next)
	}
	pgtest.WaitFor(t, patience, joined, "all three are folded in one transaction")
	// Each of them is heard of by its own name.
	beats := queryOne[string](t, db, `select string_agg(b.name, ' ' order by b.name) from daybook.runner_beat as b`)
	if diff := cmp.Diff("projection:view_conflict projection:view_decision_rate projection:view_key", beats); diff != "" {
		t.Errorf("runners (-want +got):\n%s", diff)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
	waitAndStop(t, db, builtinGroup(t), head(t, db))
	mustEqualModel(t, db)
}

// Three that are far behind one another go each at its own pace, and end up together.
func TestAllApartComeTogether(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	story := newStoryteller(1, 30)
	names := builtinGroup(t).Names()
	for i, name := range names {
		story.tell(t, db, 400)
		if i > 0 {
			if _, err := runner(t, builtin(t, name)).CatchUp(t.Context(), db.Pool, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	var w witness
	var all []projections.Projection
	for _, p := range projections.Builtin() {
		all = append(all, w.watch(p, nil))
	}
	stop := run(t, projector(t, outbox.ProjectorConfig{Pool: db.Pool, RangeSize: 30}, groupOf(t, all...)))
	waitPlace(t, db, 1600, names...)
	pgtest.WaitFor(t, patience, func() bool {
		next := head(t, db) + 1
		story.tell(t, db, 1)
		waitPlace(t, db, next, names...)
		// An event may be of one view only.
		return w.in("view_key", next) != "" && w.in("view_key", next) == w.in("view_decision_rate", next)
	}, "they are folded in one transaction")
	if err := stop(); err != nil {
		t.Error(err)
	}
	mustEqualModel(t, db)
}

// In the caller's transaction: what failed is undone and named, what did not is kept, and rolling back undoes all.
func TestApplyToAGroup(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx := t.Context()
	newStoryteller(1, 20).tell(t, db, 300)
	failing := failingAt(builtin(t, "view_job"), 200, func(ledger.Event) error { return errFlaky })
	failing.Kinds = nil
	failing.Fold = failingAt(projections.Projection{Fold: func(context.Context, pgx.Tx, []ledger.Event) error { return nil }}, 200,
		func(event ledger.Event) error { return projections.BadEvent(event, errFlaky) }).Fold
	group := groupOf(t, builtin(t, "view_key"), failing, builtin(t, "view_conflict"))
	if diff := cmp.Diff([]string{"view_conflict", "view_job", "view_key"}, group.Names()); diff != "" {
		t.Fatalf("names (-want +got):\n%s", diff)
	}
	from := map[string]ledger.Cursor{}
	for _, name := range group.Names() {
		cursor, err := group.Open(ctx, db.Pool, name)
		if err != nil {
			t.Fatal(err)
		}
		from[name] = cursor
	}
	apply := func(through ledger.Position, end func(pgx.Tx) error) (map[string]error, error) {
		tx, err := db.Pool.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(ctx) }()
		failed, err := group.Apply(ctx, tx, from, through)
		if err == nil {
			err = end(tx)
		}
		return failed, err
	}
	places := func() string {
		return fmt.Sprint(placeOf(t, db, "view_conflict"), placeOf(t, db, "view_job"), placeOf(t, db, "view_key"))
	}
	rollback := func(tx pgx.Tx) error { return tx.Rollback(ctx) }
	commit := func(tx pgx.Tx) error { return tx.Commit(ctx) }

	if failed, err := apply(250, rollback); err != nil || len(failed) != 1 {
		t.Errorf("%v, %v", failed, err)
	}
	if got := places(); got != "0 0 0" {
		t.Errorf("rolled back, the cursors are at %s", got)
	}
	failed, err := apply(250, commit)
	var foldErr *projections.FoldError
	if err != nil || len(failed) != 1 || !errors.As(failed["view_job"], &foldErr) || foldErr.Position != 200 || foldErr.Projection != "view_job" {
		t.Errorf("%v, %v", failed, err)
	}
	if got := places(); got != "250 0 250" {
		t.Errorf("the cursors are at %s, want 250 0 250", got)
	}

	// From where they were, two of them have moved: that is said of each.
	failed, err = apply(199, commit)
	if err != nil || len(failed) != 2 || !errors.Is(failed["view_key"], ledger.ErrCursorMoved) || !errors.Is(failed["view_conflict"], ledger.ErrCursorMoved) {
		t.Errorf("%v, %v", failed, err)
	}
	if got := places(); got != "250 199 250" {
		t.Errorf("the cursors are at %s, want 250 199 250", got)
	}

	// Nothing to do, nothing there, nobody there.
	from = map[string]ledger.Cursor{"view_key": {Epoch: from["view_key"].Epoch, Position: 250}}
	if failed, err := apply(250, commit); err != nil || len(failed) != 0 {
		t.Errorf("%v, %v", failed, err)
	}
	if _, err := apply(301, commit); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("beyond the head: %v", err)
	}
	from["view_nothing"] = ledger.Cursor{}
	if _, err := apply(300, commit); err == nil || !strings.Contains(err.Error(), "2 projections are asked for, 1 of them") {
		t.Errorf("one that is not in the group: %v", err)
	}
	if _, err := group.Open(ctx, db.Pool, "view_nothing"); err == nil || !strings.Contains(err.Error(), "view_nothing is not in the group") {
		t.Errorf("one that is not in the group: %v", err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	delete(from, "view_nothing")
	tx, err := db.Pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := group.Apply(cancelled, tx, from, 300); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	_ = tx.Rollback(ctx)
}
