package projections_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/projections"
	"github.com/daybook-go/daybook/tests/pgtest"
)

func rebuild(t testing.TB, db *pgtest.DB, p projections.Projection, config projections.RebuildConfig) projections.RebuildResult {
	t.Helper()
	result, err := projections.Rebuild(t.Context(), db.Pool, p, config)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// damage makes every live row wrong, so that only a rebuild can have put things right.
func damage(t testing.TB, db *pgtest.DB) {
	t.Helper()
	db.Exec(t, `delete from daybook.view_conflict; update daybook.view_key set conflicts = 1000; delete from daybook.view_decision_rate;
		update daybook.view_job set queue = 'damaged'`)
}

func TestRebuild(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	newStoryteller(1, 30).tell(t, db, 1000)
	catchUp(t, db, 0)
	damage(t, db)
	for _, p := range projections.Builtin() {
		var seen []projections.Progress
		result := rebuild(t, db, p, projections.RebuildConfig{
			BatchSize: 300, Slices: 3,
			Progress: func(p projections.Progress) { seen = append(seen, p) },
		})
		result.Took = 0
		want := projections.RebuildResult{
			Projection: p.Name, Version: 1, Position: 1000, Swapped: true, OldSchema: "daybook_old", Slices: 3,
		}
		if p.Slicing == projections.SliceNone {
			want.Slices = 1
		}
		if diff := cmp.Diff(want, result); diff != "" {
			t.Errorf("result (-want +got):\n%s", diff)
		}
		last := seen[len(seen)-1]
		if len(seen) != 4 || last.Percent != 100 || last.Head != 1000 || last.Rate <= 0 || last.TimeLeft != 0 ||
			seen[0].Percent != 30 || seen[0].TimeLeft <= 0 {
			t.Errorf("progress: %+v", seen)
		}
	}
	mustEqualModel(t, db)

	// The old tables are kept as they were, and runners go on with the new ones.
	if n := queryOne[int](t, db, `select min(conflicts) from daybook_old.view_key`); n != 1000 {
		t.Errorf("the old table has %d conflicts in a row, want 1000", n)
	}
	newStoryteller(2, 30).tell(t, db, 100)
	catchUp(t, db, 0)
	mustEqualModel(t, db)

	// Once more takes the place of those.
	for _, p := range projections.Builtin() {
		rebuild(t, db, p, projections.RebuildConfig{})
		for _, want := range [][]string{{"daybook_old." + p.Name}, nil} {
			dropped, err := projections.DropOld(t.Context(), db.Pool, p)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, dropped); diff != "" {
				t.Errorf("dropped (-want +got):\n%s", diff)
			}
		}
	}
	mustEqualModel(t, db)
	left := queryOne[int](t, db, `
		select count(*) from pg_class where relnamespace in ('daybook_old'::regnamespace, 'daybook_rebuild'::regnamespace)`)
	if left != 0 {
		t.Errorf("%d relations are left behind", left)
	}
	if n := queryOne[int](t, db, `select count(*) from daybook.cursor where name like 'rebuild:%'`); n != 0 {
		t.Errorf("%d cursors are left behind", n)
	}
}

func TestRebuildOfAnEmptyLedger(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	result := rebuild(t, db, builtin(t, "view_key"), projections.RebuildConfig{DropOld: true})
	if result.Position != 0 || !result.Swapped || result.OldSchema != "" {
		t.Errorf("%+v", result)
	}
	newStoryteller(1, 5).tell(t, db, 50)
	catchUp(t, db, 0)
	mustEqualModel(t, db)
}

// shape is all that a rebuild must not change about a table, as text.
func shape(t testing.TB, db *pgtest.DB, table string) string {
	t.Helper()
	return queryOne[string](t, db, `
		select concat_ws(E'\n',
			pg_get_userbyid(c.relowner), c.relacl::text, c.reloptions::text, c.relreplident, obj_description(c.oid, 'pg_class'),
			(select string_agg(concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attgenerated,
				a.attidentity, a.attcollation::regcollation, pg_get_expr(d.adbin, d.adrelid), a.attacl::text,
				col_description(c.oid, a.attnum)), E'\n' order by a.attname)
				from pg_attribute as a left join pg_attrdef as d on d.adrelid = a.attrelid and d.adnum = a.attnum
				where a.attrelid = c.oid and a.attnum > 0),
			(select string_agg(concat_ws(' ', k.conname, pg_get_constraintdef(k.oid), obj_description(k.oid, 'pg_constraint')),
				E'\n' order by k.conname) from pg_constraint as k where k.conrelid = c.oid),
			(select string_agg(concat_ws(' ', pg_get_indexdef(i.indexrelid), obj_description(i.indexrelid, 'pg_class')),
				E'\n' order by i.indexrelid::regclass::text) from pg_index as i where i.indrelid = c.oid))
		from pg_class as c where c.oid = $1::text::regclass`, table)
}

func TestRebuildKeepsTheShapeOfTheTables(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	// Whatever a table can have beside its columns.
	db.Exec(t, `
		create schema shop; create schema shop_rebuild; create schema shop_old;
		grant usage, create on schema shop, shop_rebuild, shop_old to daybook_owner;
		alter default privileges for role daybook_owner in schema shop_rebuild grant truncate on tables to public;
		create table shop.view_everything (
			id bigint generated by default as identity,
			kind text collate "C" not null default 'none',
			digits text generated always as (left(kind, 2)) stored,
			"Odd ""name" integer constraint "odd ""check" check ("Odd ""name" > 0),
			span int8range,
			constraint view_everything_pkey primary key (id) with (fillfactor = 60),
			constraint "odd unique" unique (kind, "Odd ""name") deferrable initially deferred,
			constraint no_overlap exclude using gist (span with &&)
		) with (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.5);
		alter table shop.view_everything set (toast.autovacuum_enabled = off);
		alter table shop.view_everything owner to daybook_owner;
		create index "Odd ""index" on shop.view_everything (lower(kind), id desc) include (digits) where id > 7;
		create unique index by_kind on shop.view_everything (kind, id);
		alter table shop.view_everything replica identity using index by_kind;
		create statistics shop.some_statistics on kind, digits from shop.view_everything;
		grant select on shop.view_everything to daybook_operator with grant option;
		grant select, insert on shop.view_everything to daybook_relay;
		grant update (kind, "Odd ""name") on shop.view_everything to public;
		revoke delete on shop.view_everything from daybook_owner;
		comment on table shop.view_everything is 'it''s everything';
		comment on column shop.view_everything.kind is 'a kind';
		comment on constraint "odd unique" on shop.view_everything is 'odd';
		comment on index shop."Odd ""index" is 'odder';
	`)
	p := projections.Projection{
		Name: "everything", Version: 1, Schema: "shop", Tables: []string{"view_everything"},
		Fold: func(context.Context, pgx.Tx, []ledger.Event) error { return nil },
	}
	want := shape(t, db, "shop.view_everything")
	for range 2 {
		rebuild(t, db, p, projections.RebuildConfig{})
		if diff := cmp.Diff(want, shape(t, db, "shop.view_everything")); diff != "" {
			t.Errorf("the rebuilt table (-want +got):\n%s", diff)
		}
	}
	for _, table := range []string{"view_key", "view_conflict", "view_decision_rate", "view_job"} {
		want := shape(t, db, "daybook."+table)
		rebuild(t, db, builtin(t, table), projections.RebuildConfig{})
		if diff := cmp.Diff(want, shape(t, db, "daybook."+table)); diff != "" {
			t.Errorf("the rebuilt table (-want +got):\n%s", diff)
		}
	}
}

func TestRebuildWithWritersRunnersAndReaders(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.MaxConns(20))
	ctx := t.Context()
	newStoryteller(1, 50).tell(t, db, 2000)
	catchUp(t, db, 0)
	rows := queryOne[int](t, db, `select count(*) from daybook.view_key`)

	var stop atomic.Bool
	var busy sync.WaitGroup
	busy.Go(func() {
		story := newStoryteller(2, 50)
		for !stop.Load() {
			_, err := db.Pool.CopyFrom(ctx, pgx.Identifier{"daybook", "event"}, eventColumns,
				pgx.CopyFromSlice(5, func(int) ([]any, error) { return story.next(), nil }))
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	busy.Go(func() {
		group := builtinGroup(t)
		for !stop.Load() {
			if _, err := group.CatchUp(ctx, db.Pool, 50); err != nil {
				t.Error(err)
				return
			}
		}
	})
	busy.Go(func() {
		for !stop.Load() {
			// No row ever goes, so a reader must never count fewer: an empty or half-built view would show.
			var now int
			if err := db.Pool.QueryRow(ctx, `select count(*) from daybook.view_key`).Scan(&now); err != nil {
				t.Error(err)
				return
			}
			if now < rows {
				t.Errorf("a reader saw %d of %d rows", now, rows)
				return
			}
		}
	})
	for _, p := range projections.Builtin() {
		if _, err := projections.Rebuild(ctx, db.Pool, p, projections.RebuildConfig{BatchSize: 500}); err != nil {
			t.Error(err)
		}
	}
	if _, err := projections.RebuildAll(ctx, db.Pool, projections.Builtin(), projections.RebuildConfig{BatchSize: 500}); err != nil {
		t.Error(err)
	}
	stop.Store(true)
	busy.Wait()
	catchUp(t, db, 0)
	mustEqualModel(t, db)
}

func TestRebuildGoesOnWhereItWasInterrupted(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	newStoryteller(1, 30).tell(t, db, 1000)
	catchUp(t, db, 0)
	damage(t, db)
	p := builtin(t, "view_key")

	// Interrupted after each batch, once; progress is called when the batch is committed.
	for i := range 9 {
		ctx, cancel := context.WithCancel(t.Context())
		result, err := projections.Rebuild(ctx, db.Pool, p, projections.RebuildConfig{
			BatchSize: 100,
			Progress:  func(projections.Progress) { cancel() },
		})
		cancel()
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("%v, want the cancellation", err)
		}
		from, to := ledger.Position(100*i), ledger.Position(100*(i+1))
		if result.ResumedAt != from || result.Position != to || result.Swapped {
			t.Errorf("%+v, want from %d to %d", result, from, to)
		}
	}
	if n := queryOne[int](t, db, `select min(conflicts) from daybook.view_key`); n != 1000 {
		t.Error("the live view was touched by an unfinished rebuild")
	}
	if result := rebuild(t, db, p, projections.RebuildConfig{BatchSize: 100}); result.ResumedAt != 900 {
		t.Errorf("%+v, want to resume at 900", result)
	}
	for _, p := range projections.Builtin() {
		rebuild(t, db, p, projections.RebuildConfig{})
	}
	mustEqualModel(t, db)
}

// interrupt leaves an unfinished rebuild behind, 100 positions in.
func interrupt(t testing.TB, db *pgtest.DB, p projections.Projection) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := projections.Rebuild(ctx, db.Pool, p, projections.RebuildConfig{
		BatchSize: 100,
		Progress:  func(projections.Progress) { cancel() },
	})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("%v, want the cancellation", err)
	}
}

func TestUnfinishedRebuildIsThrownAway(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	newStoryteller(1, 30).tell(t, db, 300)
	p := builtin(t, "view_key")

	interrupt(t, db, p)
	if result := rebuild(t, db, p, projections.RebuildConfig{Restart: true}); result.ResumedAt != 0 {
		t.Errorf("Restart resumed at %d", result.ResumedAt)
	}

	interrupt(t, db, p)
	newer := p
	newer.Version = 2
	if result := rebuild(t, db, newer, projections.RebuildConfig{}); result.ResumedAt != 0 {
		t.Errorf("another version resumed at %d", result.ResumedAt)
	}

	interrupt(t, db, newer)
	db.Exec(t, `alter table daybook.view_key add column note text`)
	if result := rebuild(t, db, newer, projections.RebuildConfig{}); result.ResumedAt != 0 {
		t.Errorf("other columns resumed at %d", result.ResumedAt)
	}

	interrupt(t, db, newer)
	db.Exec(t, `update daybook.meta set epoch = epoch + 1`)
	result := rebuild(t, db, newer, projections.RebuildConfig{})
	if result.ResumedAt != 0 {
		t.Errorf("another epoch resumed at %d", result.ResumedAt)
	}
	// The live cursor is of the current epoch now.
	if _, err := runner(t, newer).CatchUp(t.Context(), db.Pool, 0); err != nil {
		t.Error(err)
	}
	// The old build must not write into tables of the new version.
	var versionErr *projections.VersionError
	if _, err := runner(t, p).CatchUp(t.Context(), db.Pool, 0); !errors.As(err, &versionErr) {
		t.Errorf("%v, want a VersionError", err)
	}
}

func TestOldRunnerDoesNotFoldIntoANewVersion(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx := t.Context()
	newStoryteller(1, 30).tell(t, db, 200)
	p := builtin(t, "view_key")
	old := runner(t, p)
	cursor, err := old.Open(ctx, db.Pool)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := old.CatchUp(ctx, db.Pool, 0); err != nil {
		t.Fatal(err)
	}
	cursor.Position = 200

	// The swap leaves the cursor where the old runner believes it to be; the version alone tells.
	newer := p
	newer.Version = 2
	rebuild(t, db, newer, projections.RebuildConfig{})
	newStoryteller(2, 30).tell(t, db, 10)
	err = pgx.BeginFunc(ctx, db.Pool, func(tx pgx.Tx) error { return old.Apply(ctx, tx, cursor, 210) })
	var versionErr *projections.VersionError
	if !errors.As(err, &versionErr) {
		t.Errorf("%v, want a VersionError", err)
	}
}

func TestRebuildWithABadEvent(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	newStoryteller(1, 30).tell(t, db, 300)
	catchUp(t, db, 0)
	db.Exec(t, `insert into daybook.event (recorded_at, job_id, key_hash, kind, scope, key_preview, body)
		values (now(), gen_random_uuid(), sha256('x'), 'enqueue.accepted', 's', '…', '{"v":1,"type":17}')`)
	newStoryteller(2, 30).tell(t, db, 300)
	before := stored(t, db)
	for _, name := range []string{"view_key", "view_decision_rate"} {
		result, err := projections.Rebuild(t.Context(), db.Pool, builtin(t, name), projections.RebuildConfig{})
		var foldErr *projections.FoldError
		if !errors.As(err, &foldErr) || foldErr.Position != 301 || foldErr.Kind != ledger.KindAccepted || foldErr.EventID == 0 {
			t.Errorf("%v, want a FoldError at position 301", err)
		}
		if result.Position != 300 || result.Swapped {
			t.Errorf("%+v", result)
		}
	}
	if diff := cmp.Diff(before, stored(t, db)); diff != "" {
		t.Errorf("the live views were touched (-before +after):\n%s", diff)
	}
}
