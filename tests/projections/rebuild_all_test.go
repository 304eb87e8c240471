package projections_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/projections"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// interruptAt leaves an unfinished rebuild behind, one batch of that size in.
func interruptAt(t testing.TB, db *pgtest.DB, p projections.Projection, batch int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := projections.Rebuild(ctx, db.Pool, p, projections.RebuildConfig{
		BatchSize: batch, Slices: 3,
		Progress: func(projections.Progress) { cancel() },
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("%v, want the cancellation", err)
	}
}

func TestRebuildAll(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx := t.Context()
	newStoryteller(1, 30).tell(t, db, 800)
	catchUp(t, db, 0)
	damage(t, db)
	all := projections.Builtin()
	interruptAt(t, db, all[2], 100)
	var progress []projections.Progress
	stages := map[string]string{}
	results, err := projections.RebuildAll(ctx, db.Pool, all, projections.RebuildConfig{
		BatchSize: 100, Slices: 2,
		Progress: func(p projections.Progress) { progress = append(progress, p) },
		Stage:    func(name string, stage projections.Stage) { stages[name] += string(stage) + " " },
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range all {
		r := results[i]
		want := projections.RebuildResult{
			Projection: p.Name, Version: 1, Position: 800, Swapped: true, OldSchema: "daybook_old", Slices: 2, Took: r.Took,
		}
		switch {
		case p.Slicing == projections.SliceNone:
			want.Slices = 1
		case i == 2:
			want.ResumedAt, want.Slices = 100, 3
		}
		if diff := cmp.Diff(want, r); diff != "" {
			t.Errorf("result (-want +got):\n%s", diff)
		}
		if got := stages[p.Name]; got != "fill index swap " {
			t.Errorf("stages of %s: %s", p.Name, got)
		}
	}
	// Read once for all of them: one report for each batch.
	if len(progress) != 8 || progress[7].Percent != 100 || progress[7].Projection != "view_conflict, view_decision_rate, view_job, view_key" {
		t.Errorf("%d reports of progress, the last %+v", len(progress), progress[len(progress)-1])
	}
	mustEqualModel(t, db)
	if n := queryOne[int](t, db, `select count(*) from daybook.cursor where name like 'rebuild:%'`); n != 0 {
		t.Errorf("%d cursors are left behind", n)
	}

	// Once more, and then with runners again.
	if _, err := projections.RebuildAll(ctx, db.Pool, all, projections.RebuildConfig{DropOld: true}); err != nil {
		t.Fatal(err)
	}
	newStoryteller(2, 30).tell(t, db, 100)
	catchUp(t, db, 0)
	mustEqualModel(t, db)

	if _, err := projections.RebuildAll(ctx, db.Pool, []projections.Projection{all[0], all[0]}, projections.RebuildConfig{}); err == nil {
		t.Error("one projection was rebuilt twice at once")
	}
}

// A rebuild that fails does not hold up the others, whether its fold fails or it cannot begin.
func TestRebuildAllGoesOnWithoutTheOneThatFails(t *testing.T) {
	t.Parallel()
	for _, by := range []projections.Slicing{projections.SliceNone, projections.SliceByKey} {
		t.Run(fmt.Sprint(by), func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			newStoryteller(1, 30).tell(t, db, 500)
			catchUp(t, db, 0)
			damage(t, db)
			conflict, rate, job, key := projections.ViewConflict(), projections.ViewDecisionRate(), projections.ViewJob(), projections.ViewKey()
			errBad := errors.New("cannot make sense of it")
			conflict.Kinds, conflict.Slicing = nil, by
			conflict.Fold = func(_ context.Context, _ pgx.Tx, events []ledger.Event) error {
				for _, event := range events {
					// Two of them, so that slices fail at different places: what counts is the first.
					if event.Position == 137 || event.Position == 138 || event.Position == 139 {
						return errBad
					}
				}
				return nil
			}
			job.Tables = []string{"view_nothing"}
			results, err := projections.RebuildAll(t.Context(), db.Pool, []projections.Projection{conflict, rate, job, key},
				projections.RebuildConfig{BatchSize: 64, Slices: 3})
			var foldErr *projections.FoldError
			if !errors.As(err, &foldErr) || foldErr.Position != 137 || !errors.Is(err, errBad) || foldErr.Projection != "view_conflict" {
				t.Errorf("%v, want a FoldError at position 137", err)
			}
			if err == nil || !strings.Contains(err.Error(), "table daybook.view_nothing does not exist") {
				t.Errorf("%v, want something about the table", err)
			}
			for i, r := range results {
				if wantSwapped := i == 1 || i == 3; r.Swapped != wantSwapped || (r.Err == nil) != wantSwapped {
					t.Errorf("%+v", r)
				}
			}
			if results[0].Position != 136 || !errors.Is(results[0].Err, errBad) {
				t.Errorf("%+v, want position 136", results[0])
			}
			if diff := cmp.Diff(model(t, db).Keys, stored(t, db).Keys); diff != "" {
				t.Errorf("view_key (-want +got):\n%.2000s", diff)
			}
			if diff := cmp.Diff(model(t, db).Rates, stored(t, db).Rates); diff != "" {
				t.Errorf("view_decision_rate (-want +got):\n%.2000s", diff)
			}
			if n := queryOne[int](t, db, `select count(*) from daybook.view_job where queue <> 'damaged'`); n != 0 {
				t.Error("a view that failed was touched")
			}
		})
	}
}

// Two projections over the same keys: the rebuild of one is nothing to the other, nor to its runner.
func TestRebuildOfOneOfTwoOverTheSameKeys(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	newStoryteller(1, 20).tell(t, db, 300)
	catchUp(t, db, 0)
	db.Exec(t, `update daybook.view_key set conflicts = 1000; update daybook.view_job set queue = 'damaged'`)
	before := queryOne[string](t, db, `select md5(string_agg(j::text, '' order by job_id)) from daybook.view_job as j`)
	rebuild(t, db, projections.ViewKey(), projections.RebuildConfig{Slices: 2})
	if after := queryOne[string](t, db, `select md5(string_agg(j::text, '' order by job_id)) from daybook.view_job as j`); after != before {
		t.Error("view_job was touched by a rebuild of view_key")
	}
	if report := verify(t, db, projections.ViewKey()); !report.OK {
		t.Errorf("%+v", report)
	}
	if report := verify(t, db, projections.ViewJob()); report.OK {
		t.Error("view_job was healed by a rebuild of view_key")
	}
}

// Whoever subscribes gets nothing of a rebuild: no message again, no new one.
func TestRebuildPublishesNothing(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	newStoryteller(1, 20).tell(t, db, 200)
	catchUp(t, db, 0)
	subscriber, err := outbox.NewSubscriber(outbox.Config{Pool: db.Pool, ConsumerGroup: "mailer", PollInterval: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	messages, err := subscriber.Subscribe(t.Context(), outbox.TopicAll)
	if err != nil {
		t.Fatal(err)
	}
	next := func() ledger.Position {
		t.Helper()
		select {
		case msg := <-messages:
			attributes, err := outbox.AttributesOf(msg)
			if err != nil {
				t.Fatal(err)
			}
			msg.Ack()
			return attributes.Position
		case <-time.After(time.Minute):
			t.Fatal("no message")
			return 0
		}
	}
	for want := ledger.Position(1); want <= 200; want++ {
		if got := next(); got != want {
			t.Fatalf("message of position %d, want %d", got, want)
		}
	}
	for range 2 {
		if _, err := projections.RebuildAll(t.Context(), db.Pool, projections.Builtin(), projections.RebuildConfig{BatchSize: 50}); err != nil {
			t.Fatal(err)
		}
	}
	// The next that comes is of the next event: between the two there was nothing.
	newStoryteller(2, 20).tell(t, db, 1)
	if got := next(); got != 201 {
		t.Errorf("after the rebuild came a message of position %d, want 201", got)
	}
	if err := subscriber.Close(); err != nil {
		t.Error(err)
	}
	if events := queryOne[int](t, db, `select count(*) from daybook.event`); events != 201 {
		t.Errorf("%d events, want 201: a rebuild has appended some", events)
	}
}

func TestDryRun(t *testing.T) {
	t.Parallel()
	db := newShop(t)
	ctx := t.Context()
	newStoryteller(1, 20).tell(t, db, 400)
	catchUp(t, db, 0)
	if _, err := runner(t, perScope1()).CatchUp(ctx, db.Pool, 0); err != nil {
		t.Fatal(err)
	}
	interruptAt(t, db, projections.ViewKey(), 100)
	const facts = `select jsonb_build_object('events', (select count(*) from daybook.event),
		'cursors', (select jsonb_agg(to_jsonb(c) order by name) from daybook.cursor as c),
		'projections', (select jsonb_agg(to_jsonb(p) order by name) from daybook.projection as p),
		'relations', (select jsonb_agg(c.oid::regclass::text order by c.oid) from pg_class as c
			where c.relpersistence <> 't' and c.relnamespace <> 'pg_toast'::regnamespace))::text`
	before := queryOne[string](t, db, facts)

	key, scope := projections.ViewKey(), perScope2()
	for _, p := range []projections.Projection{key, scope} {
		plan, err := projections.DryRun(ctx, db.Pool, p, projections.RebuildConfig{BatchSize: 150, Slices: 3})
		if err != nil {
			t.Fatal(err)
		}
		if plan.Rate <= 0 || plan.Fold <= 0 || plan.LiveBytes == 0 {
			t.Errorf("%+v", plan)
		}
		want := projections.RebuildPlan{
			Projection: p.Name, Version: p.Version, LiveVersion: 1, Head: 400, Events: 400, LiveBytes: plan.LiveBytes,
			Sampled: 400, Rate: plan.Rate, Slices: 1,
			Fold: plan.Fold, Indexes: plan.Indexes, Shortest: plan.Shortest, Longest: plan.Longest,
		}
		if p.Name == "view_key" {
			// It goes on with the slices that it has.
			want.ResumesAt = 100
			want.Slices = queryOne[int](t, db, `select count(*) from daybook.cursor where name like 'rebuild:view_key:%'`)
			want.Events = queryOne[int64](t, db, `select count(*) from daybook.event where kind not like 'job.%'`)
		}
		if diff := cmp.Diff(want, plan); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	plan, err := projections.DryRun(ctx, db.Pool, key, projections.RebuildConfig{BatchSize: 150, Slices: 3, Restart: true})
	if err != nil || plan.ResumesAt != 0 || plan.Slices != 3 {
		t.Errorf("from the beginning: %+v, %v", plan, err)
	}
	// Three slices at best, one at worst, and the indexes, which this view has and one made by its DDL has had from the beginning.
	if best, all := plan.Fold/3+plan.Indexes, plan.Fold+plan.Indexes; plan.Indexes <= 0 || plan.Shortest >= best || plan.Longest <= all {
		t.Errorf("%v of folding, %v of indexes: between %v and %v", plan.Fold, plan.Indexes, plan.Shortest, plan.Longest)
	}
	if plan, err := projections.DryRun(ctx, db.Pool, scope, projections.RebuildConfig{}); err != nil || plan.Indexes != 0 {
		t.Errorf("%+v, %v", plan, err)
	}
	bad := key
	bad.Kinds, bad.Fold = nil, func(context.Context, pgx.Tx, []ledger.Event) error { return nil }
	bad = failingAt(bad, 7, func(event ledger.Event) error { return projections.BadEvent(event, errFlaky) })
	var foldErr *projections.FoldError
	if _, err := projections.DryRun(ctx, db.Pool, bad, projections.RebuildConfig{}); !errors.As(err, &foldErr) || foldErr.Position != 7 {
		t.Errorf("%v, want a FoldError at position 7", err)
	}
	bad.Tables = []string{"view_nothing"}
	if _, err := projections.DryRun(ctx, db.Pool, bad, projections.RebuildConfig{}); err == nil {
		t.Error("a dry run found nothing wrong with a table that does not exist")
	}
	if diff := cmp.Diff(before, queryOne[string](t, db, facts)); diff != "" {
		t.Errorf("a dry run changed something (-before +after):\n%s", diff)
	}
}

// Indexes that enforce nothing are made when the tables are full, but for those by which the fold looks rows up.
func TestRebuildBuildsIndexesLast(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	newStoryteller(1, 30).tell(t, db, 200)
	db.Exec(t, `create unique index view_job_once on daybook.view_job (job_id, queue)`)
	const indexes = `
		select string_agg(c.relname, ' ' order by c.relname)
		from pg_class as c
		where c.relkind = 'i' and c.relnamespace = ($1 || '')::regnamespace and c.relname like 'view\_job%'`
	p := builtin(t, "view_job")
	p.FoldIndexes = []string{"view_job_queue"}
	var before, after string
	rebuild(t, db, p, projections.RebuildConfig{Stage: func(_ string, stage projections.Stage) {
		switch stage {
		case projections.StageIndex:
			before = queryOne[string](t, db, indexes, "daybook_rebuild")
		case projections.StageSwap:
			after = queryOne[string](t, db, indexes, "daybook_rebuild")
		}
	}})
	if want := "view_job_once view_job_pkey view_job_queue"; before != want {
		t.Errorf("while it is filled there are the indexes %s, want %s", before, want)
	}
	if want := queryOne[string](t, db, indexes, "daybook_old"); after != want {
		t.Errorf("before the swap there are the indexes %s, want %s", after, want)
	}
	if report := verify(t, db, p); !report.OK {
		t.Errorf("%+v", report)
	}
}
