package projections_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/projections"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// asMember returns a pool of a role that has nothing but the membership in others.
func asMember(t testing.TB, db *pgtest.DB, roles ...string) *pgxpool.Pool {
	t.Helper()
	member := "member_" + strings.Join(roles, "_")[len("daybook_"):] + "_" + db.Name
	member = member[:min(63, len(member))]
	db.Exec(t, `create role `+member+` nologin inherit; grant `+strings.Join(roles, ", ")+` to `+member)
	t.Cleanup(func() {
		// The role is of the cluster, and outlives the database. A session that has just been closed may still own
		// temporary tables for a moment.
		pgtest.WaitFor(t, time.Minute, func() bool {
			_, err := db.Pool.Exec(context.WithoutCancel(t.Context()), `drop role `+member)
			return err == nil
		}, "role %s cannot be dropped", member)
	})
	return db.AsRole(t, member)
}

func TestOperatorReadsWithoutHashes(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx := t.Context()
	newStoryteller(1, 30).tell(t, db, 500)
	catchUp(t, db, 0)
	operator := asMember(t, db, "daybook_operator")
	check := func() {
		t.Helper()
		rates, err := projections.DecisionRates(ctx, operator, projections.RateFilter{})
		if err != nil || len(rates) == 0 {
			t.Errorf("%d rates, %v", len(rates), err)
		}
		for _, filter := range []projections.KeyFilter{{}, {Scope: "scope-1"}, {KeyDigest: string(hashOf(1).Digest())}} {
			keys, err := projections.Keys(ctx, operator, filter)
			if err != nil || len(keys) == 0 {
				t.Errorf("%+v: %d keys, %v", filter, len(keys), err)
			}
		}
		conflicts, err := projections.Conflicts(ctx, operator, projections.ConflictFilter{})
		if err != nil || len(conflicts) == 0 {
			t.Errorf("%d conflicts, %v", len(conflicts), err)
		}
		for _, filter := range []projections.JobFilter{{}, {State: "ready"}, {Queue: "queue-1"}, {KeyDigest: string(hashOf(1).Digest())}} {
			jobs, err := projections.Jobs(ctx, operator, filter)
			if err != nil || len(jobs) == 0 {
				t.Errorf("%+v: %d jobs, %v", filter, len(jobs), err)
			}
		}
		for _, sql := range []string{
			`select key_hash from daybook.view_key`,
			`select * from daybook.view_key`,
			`select 1 from daybook.view_key where key_hash = '\x00'`,
			`select count(k) from daybook.view_key as k`,
			`select payload from daybook.job`,
			`delete from daybook.view_conflict`,
			`update daybook.view_job set state = 'failed'`,
			`update daybook.cursor set position = 0`,
			`select * from daybook_old.view_key`,
		} {
			_, err := operator.Exec(ctx, sql)
			var pgErr *pgconn.PgError
			if !errors.As(err, &pgErr) || pgErr.Code != "42501" {
				t.Errorf("%s: %v, want it refused", sql, err)
			}
		}
	}
	check()
	for _, p := range projections.Builtin() {
		rebuild(t, db, p, projections.RebuildConfig{})
	}
	check()
}

func TestRelayProjectsAndVerifies(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx := t.Context()
	newStoryteller(1, 30).tell(t, db, 300)
	relay := asMember(t, db, "daybook_relay")
	if _, err := builtinGroup(t).CatchUp(ctx, relay, 50); err != nil {
		t.Fatal(err)
	}
	mustEqualModel(t, db)
	for _, p := range projections.Builtin() {
		report, err := projections.Verify(ctx, relay, p)
		if err != nil || !report.OK {
			t.Errorf("%+v, %v", report, err)
		}
		// Refused before anything is done.
		_, err = projections.Rebuild(ctx, relay, p, projections.RebuildConfig{})
		if err == nil || !strings.Contains(err.Error(), "owned by daybook_owner; rebuild as a member of that role") {
			t.Errorf("%v, want a refusal with advice", err)
		}
	}
}

func TestMemberOfTheOwnerRebuilds(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx := t.Context()
	newStoryteller(1, 30).tell(t, db, 300)
	catchUp(t, db, 0)
	damage(t, db)
	owner := asMember(t, db, "daybook_owner")
	for _, p := range projections.Builtin() {
		if _, err := projections.Rebuild(ctx, owner, p, projections.RebuildConfig{BatchSize: 100}); err != nil {
			t.Error(err)
		}
		if _, err := projections.DropOld(ctx, owner, p); err != nil {
			t.Error(err)
		}
	}
	mustEqualModel(t, db)
}

func TestHostileSearchPath(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	ctx := t.Context()
	newStoryteller(1, 30).tell(t, db, 100)
	// Whatever the fold could be tricked with, in front of everything else.
	pool, err := pgxpool.New(ctx, db.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	conn, err := pool.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_, err = conn.Exec(ctx, `
		create schema evil;
		create table evil.view_key (like daybook.view_key including all);
		create function evil.unnest(bytea[]) returns setof bytea language sql as 'select null::bytea where false';
		create temp table view_key (like daybook.view_key including all);
		set search_path = pg_temp, evil, public`)
	if err != nil {
		t.Fatal(err)
	}
	r := runner(t, builtin(t, "view_key"))
	cursor, err := r.Open(ctx, conn)
	if err != nil {
		t.Fatal(err)
	}
	tx, err := conn.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Apply(ctx, tx, cursor, 100); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	conn.Release()
	catchUp(t, db, 0)
	mustEqualModel(t, db)
}
