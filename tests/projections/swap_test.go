package projections_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/daybook-go/daybook/projections"
	"github.com/daybook-go/daybook/tests/pgtest"
)

func TestSwapDoesNotHoldUpReadersBehindALongOne(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx := t.Context()
	newStoryteller(1, 30).tell(t, db, 300)
	catchUp(t, db, 0)
	damage(t, db)
	p := builtin(t, "view_key")

	long, err := db.Pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = long.Rollback(ctx) }()
	if _, err := long.Exec(ctx, `select count(*) from daybook.view_key`); err != nil {
		t.Fatal(err)
	}
	config := projections.RebuildConfig{LockTimeout: 20 * time.Millisecond, SwapTimeout: 100 * time.Millisecond}
	result, err := projections.Rebuild(ctx, db.Pool, p, config)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("held by backend %d", long.Conn().PgConn().PID())) {
		t.Errorf("%v, want an error that names the holder", err)
	}
	if result.Swapped || result.Position != 300 {
		t.Errorf("%+v", result)
	}

	// While the swap tries again and again, other readers and the runner get through.
	newStoryteller(2, 30).tell(t, db, 50)
	done := make(chan error, 1)
	go func() {
		_, err := projections.Rebuild(ctx, db.Pool, p, projections.RebuildConfig{LockTimeout: 20 * time.Millisecond})
		done <- err
	}()
	for range 10 {
		var n int
		if err := db.Pool.QueryRow(ctx, `select count(*) from daybook.view_key`).Scan(&n); err != nil {
			t.Error(err)
		}
		catchUp(t, db, 0)
	}
	if err := long.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	catchUp(t, db, 0)
	if diff := cmp.Diff(model(t, db).Keys, stored(t, db).Keys); diff != "" {
		t.Errorf("(-want +got):\n%.2000s", diff)
	}
}

func TestViewsOnTopSurviveTheSwap(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	newStoryteller(1, 30).tell(t, db, 300)
	catchUp(t, db, 0)
	db.Exec(t, `
		create view public.busy_keys with (security_barrier = true) as
			select key_digest, conflicts from daybook.view_key where conflicts > 0;
		create view public.busiest as select max(conflicts) as conflicts from public.busy_keys;
		grant select on public.busy_keys to daybook_operator;
		comment on view public.busy_keys is 'keys with conflicts';
		update daybook.view_key set conflicts = 1000`)
	acl := queryOne[string](t, db, `select relacl::text || reloptions::text from pg_class where oid = 'public.busy_keys'::regclass`)
	rebuild(t, db, builtin(t, "view_key"), projections.RebuildConfig{DropOld: true})
	got := queryOne[int](t, db, `select conflicts from public.busiest`)
	want := queryOne[int](t, db, `select max(conflicts) from daybook.view_key`)
	if got != want || got == 1000 {
		t.Errorf("through the views there are %d conflicts, in the table %d", got, want)
	}
	if now := queryOne[string](t, db, `select relacl::text || reloptions::text from pg_class where oid = 'public.busy_keys'::regclass`); now != acl {
		t.Errorf("the view's grants and options are %s, were %s", now, acl)
	}
}

func TestRebuildRefusesWhatItCannotCarryOver(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"depends on it":    `create materialized view public.m as select key_digest from daybook.view_key`,
		"trigger t":        `create trigger t before insert on daybook.view_key for each row execute function suppress_redundant_updates_trigger()`,
		"row security":     `alter table daybook.view_key enable row level security`,
		"inherits":         `create table public.child () inherits (daybook.view_key)`,
		"function f":       `create function public.f() returns bigint begin atomic select count(*) from daybook.view_key; end`,
		"row type":         `create function public.g(k daybook.view_key) returns text language sql as 'select k.scope'`,
		"publication":      `create publication p for table daybook.view_key`,
		"owned by":         `create role other_%[1]s; alter table daybook.view_key owner to other_%[1]s`,
		"no primary key":   `alter table daybook.view_key drop constraint view_key_pkey`,
		"does not exist":   `drop table daybook.view_key`,
		"foreign":          `create table public.x (p bigint primary key); alter table daybook.view_key add foreign key (last_position) references public.x`,
		"is missing":       `drop schema daybook_old`,
		"create tables in": `alter schema daybook_old owner to postgres; revoke all on schema daybook_old from daybook_owner`,
	}
	for want, spoil := range tests {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			ctx := t.Context()
			if strings.Contains(spoil, "%") {
				spoil = fmt.Sprintf(spoil, db.Name)
				t.Cleanup(func() {
					_, _ = db.Pool.Exec(context.WithoutCancel(ctx), `drop owned by other_`+db.Name+`; drop role other_`+db.Name)
				})
			}
			spoil = strings.ReplaceAll(spoil, "to postgres", "to current_user")
			db.Exec(t, spoil)
			_, err := projections.Rebuild(ctx, asMember(t, db, "daybook_owner"), builtin(t, "view_key"), projections.RebuildConfig{})
			if want == "row type" {
				want = "function g"
			}
			if want == "foreign" {
				want = "constraint view_key_last_position_fkey"
			}
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want something with %q", err, want)
			}
			if n := queryOne[int](t, db, `select count(*) from pg_class where relnamespace = 'daybook_rebuild'::regnamespace`); n != 0 {
				t.Error("it began nevertheless")
			}
		})
	}
}

func TestTwoRebuildsAtOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	newStoryteller(1, 30).tell(t, db, 300)
	p := builtin(t, "view_key")
	var second error
	rebuild(t, db, p, projections.RebuildConfig{Progress: func(projections.Progress) {
		_, second = projections.Rebuild(t.Context(), db.Pool, p, projections.RebuildConfig{})
		if _, err := projections.DropOld(t.Context(), db.Pool, p); err == nil {
			t.Error("DropOld ran during a rebuild")
		}
	}})
	if second == nil || !strings.Contains(second.Error(), "under way") {
		t.Errorf("%v, want a refusal", second)
	}
	catchUp(t, db, 0)
	if diff := cmp.Diff(model(t, db).Keys, stored(t, db).Keys); diff != "" {
		t.Errorf("(-want +got):\n%.2000s", diff)
	}
}

func TestRebuildChangesNothingElse(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	newStoryteller(1, 30).tell(t, db, 300)
	catchUp(t, db, 0)
	const facts = `select jsonb_build_object('events', (select count(*) from daybook.event),
		'order', (select count(*) from daybook.ledger_order), 'jobs', (select count(*) from daybook.job),
		'cursors', (select jsonb_agg(to_jsonb(c) - 'updated_at' order by name) from daybook.cursor as c))::text`
	before := queryOne[string](t, db, facts)
	for _, p := range projections.Builtin() {
		rebuild(t, db, p, projections.RebuildConfig{})
	}
	if diff := cmp.Diff(before, queryOne[string](t, db, facts)); diff != "" {
		t.Errorf("a rebuild changed what is not its own (-before +after):\n%s", diff)
	}
}
