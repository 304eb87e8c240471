package projections_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/projections"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// perScope is a projection of an application, in two versions: how many events each scope has, and in version 2 with the
// kinds apart, and without the position of the last.
const (
	perScopeV1 = `
		create table per_scope (
			scope text not null,
			events bigint not null,
			last_position bigint not null,
			constraint per_scope_pkey primary key (scope)
		);
		create index per_scope_events on per_scope (events);
		comment on table per_scope is 'version 1';`
	perScopeV2 = `
		create table per_scope (
			scope text not null,
			events integer not null,
			conflicts integer not null default 0,
			constraint per_scope_pkey primary key (scope)
		) with (fillfactor = 60);
		create index per_scope_conflicts on per_scope (conflicts) where conflicts > 0;
		create table per_kind (
			kind text not null,
			events integer not null,
			constraint per_kind_pkey primary key (kind)
		);
		grant select (events) on per_kind to daybook_operator;
		comment on table per_scope is 'version 2';`
)

func perScope1() projections.Projection {
	return projections.Projection{
		Name: "per_scope", Version: 1, Schema: "shop", Tables: []string{"per_scope"},
		Fold: func(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
			for _, event := range events {
				_, err := tx.Exec(ctx, `
					insert into per_scope as p (scope, events, last_position) values ($1, 1, $2)
					on conflict on constraint per_scope_pkey do update
					set events = p.events + 1, last_position = excluded.last_position`, event.Scope, int64(event.Position))
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func perScope2() projections.Projection {
	return projections.Projection{
		Name: "per_scope", Version: 2, Schema: "shop", Tables: []string{"per_scope", "per_kind"}, DDL: perScopeV2,
		Fold: func(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
			for _, event := range events {
				_, err := tx.Exec(ctx, `
					insert into per_scope as p (scope, events, conflicts) values ($1, 1, $2::boolean::integer)
					on conflict on constraint per_scope_pkey do update
					set events = p.events + 1, conflicts = p.conflicts + excluded.conflicts`,
					event.Scope, event.Kind == ledger.KindConflictRejected)
				if err != nil {
					return err
				}
				_, err = tx.Exec(ctx, `
					insert into per_kind as p (kind, events) values ($1, 1)
					on conflict on constraint per_kind_pkey do update set events = p.events + 1`, string(event.Kind))
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// newShop is a database with the tables of version 1, made as a migration of the application would.
func newShop(t *testing.T) *pgtest.DB {
	t.Helper()
	db := pgtest.New(t, pgtest.MaxConns(20))
	db.Exec(t, `
		create schema shop authorization daybook_owner;
		create schema shop_rebuild authorization daybook_owner;
		create schema shop_old authorization daybook_owner;
		grant usage on schema shop to daybook_operator;
		set role daybook_owner;
		set search_path = shop;
		`+perScopeV1+`
		grant select on per_scope to daybook_operator;
		grant update (last_position, events) on per_scope to daybook_relay;
		reset role;
		reset search_path`)
	return db
}

func TestRebuildOfANewVersionWithOtherColumns(t *testing.T) {
	t.Parallel()
	db := newShop(t)
	ctx := t.Context()
	newStoryteller(1, 10).tell(t, db, 150)
	old := runner(t, perScope1())
	if _, err := old.CatchUp(ctx, db.Pool, 0); err != nil {
		t.Fatal(err)
	}

	// The old build runs and its readers read until the swap, and both see what they know.
	var swapped atomic.Bool
	var busy sync.WaitGroup
	busy.Go(func() {
		for story := newStoryteller(2, 10); ; {
			story.tell(t, db, 5)
			after := swapped.Load()
			_, err := old.CatchUp(ctx, db.Pool, 3)
			if versionErr := (*projections.VersionError)(nil); errors.As(err, &versionErr) && versionErr.Live == 2 && versionErr.Built == 1 {
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
			if after {
				t.Error("an old runner went on with the tables of a new version")
				return
			}
		}
	})
	busy.Go(func() {
		for {
			var scopes int
			after := swapped.Load()
			err := db.Pool.QueryRow(ctx, `select count(last_position) from shop.per_scope`).Scan(&scopes)
			if pgErr := (*pgconn.PgError)(nil); errors.As(err, &pgErr) && pgErr.Code == "42703" {
				return // the column is gone, in the swap
			}
			if err != nil || scopes == 0 {
				t.Errorf("a reader of version 1 saw %d rows, %v", scopes, err)
				return
			}
			if after {
				t.Error("the column is still there after the swap")
				return
			}
		}
	})
	next := perScope2()
	result, err := projections.Rebuild(ctx, db.Pool, next, projections.RebuildConfig{BatchSize: 20})
	swapped.Store(err == nil)
	busy.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if result.Version != 2 || !result.Swapped {
		t.Errorf("%+v", result)
	}

	if n := queryOne[int](t, db, `select count(*) from pg_class where relname = 'per_scope' and relpersistence = 't'`); n != 0 {
		t.Errorf("%d temporary tables are left", n)
	}

	if _, err := runner(t, next).CatchUp(ctx, db.Pool, 0); err != nil {
		t.Fatal(err)
	}
	if report := verify(t, db, next); !report.OK || report.Tables[0].Rows == 0 || report.Tables[1].Rows == 0 {
		t.Errorf("%+v", report)
	}
	// By its DDL, and with the grants of both.
	db.Exec(t, `create schema pattern; set search_path = pattern; `+perScopeV2+`
		grant select on per_scope to daybook_operator; grant update (events) on per_scope to daybook_relay;
		alter table per_scope owner to daybook_owner; alter table per_kind owner to daybook_owner; reset search_path`)
	for _, table := range []string{"per_scope", "per_kind"} {
		want := strings.ReplaceAll(shape(t, db, "pattern."+table), "pattern.", "shop.")
		if diff := cmp.Diff(want, shape(t, db, "shop."+table)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", table, diff)
		}
	}

	// The old tables are kept as they were; and the same version can be rebuilt again, and again be interrupted.
	if n := queryOne[int](t, db, `select count(last_position) from shop_old.per_scope`); n == 0 {
		t.Error("the old table is not kept")
	}
	interruptAt(t, db, next, 20)
	if result := rebuild(t, db, next, projections.RebuildConfig{DropOld: true}); result.ResumedAt == 0 {
		t.Error("a rebuild with DDL did not go on where it was interrupted")
	}
	if report := verify(t, db, next); !report.OK {
		t.Errorf("%+v", report)
	}
}

func TestRebuildWithDDLRefusesWhatDoesNotFit(t *testing.T) {
	t.Parallel()
	db := newShop(t)
	newStoryteller(1, 10).tell(t, db, 30)
	if _, err := runner(t, perScope1()).CatchUp(t.Context(), db.Pool, 0); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ want, ddl, sql string }{
		{want: "does not make table per_kind", ddl: `create table per_scope (scope text primary key)`},
		{want: "makes no tables, or names their schema", ddl: `create table shop_rebuild.per_scope (scope text primary key)`},
		{want: "it has no primary key", ddl: `create table per_scope (scope text); create table per_kind (kind text primary key)`},
		{want: "ends the transaction", ddl: `create table per_scope (scope text primary key); commit`},
		{want: "make its tables from its DDL", ddl: `create tabel per_scope ()`},
		{
			want: "view shop.last needs column per_scope.last_position as it is, which version 2 does not have", ddl: perScopeV2,
			sql: `create view shop.last as select scope, last_position from shop.per_scope`,
		},
	} {
		if test.sql != "" {
			db.Exec(t, test.sql)
		}
		p := perScope2()
		p.DDL = test.ddl
		_, err := projections.Rebuild(t.Context(), db.Pool, p, projections.RebuildConfig{})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v, want something with %q", err, test.want)
		}
		db.Exec(t, `drop table if exists shop_rebuild.per_scope`)
	}
	if n := queryOne[int](t, db, `select count(*) from shop.per_scope`); n == 0 {
		t.Error("the live table was touched")
	}

	// A view that finds what it needs goes on, over the new table.
	db.Exec(t, `drop view shop.last; create view shop.scopes as select scope from shop.per_scope`)
	rebuild(t, db, perScope2(), projections.RebuildConfig{DropOld: true})
	if n := queryOne[int](t, db, `select count(*) from shop.scopes`); n == 0 {
		t.Error("the view is empty")
	}
}
