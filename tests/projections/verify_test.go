package projections_test

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/projections"
	"github.com/daybook-go/daybook/tests/pgtest"
)

func verify(t testing.TB, db *pgtest.DB, p projections.Projection) projections.Report {
	t.Helper()
	report, err := projections.Verify(t.Context(), db.Pool, p)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestVerifyFindsDamage(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		projection, damage        string
		missing, extra, different int64
		columns                   []string
		first                     string // SQL for the expected first position, asked before the damage
	}{
		"key missing": {
			projection: "view_key", missing: 1,
			damage: `delete from daybook.view_key where first_position = (select min(first_position) from daybook.view_key)`,
			first:  `select min(first_position) from daybook.view_key`,
		},
		"key extra": {
			projection: "view_key", extra: 1,
			damage: `insert into daybook.view_key (key_hash, accepted, replaced, non_replaceable, conflicts, first_position,
					last_position, scope, key_preview) values (sha256('nobody'), 1, 0, 0, 0, 7, 7, 's', '…')`,
			first: `select 7::bigint`,
		},
		"key counts differ": {
			projection: "view_key", different: 1, columns: []string{"accepted", "conflicts"},
			damage: `update daybook.view_key set accepted = accepted + 1, conflicts = 99
				where first_position = (select max(first_position) from daybook.view_key)`,
			first: `select max(first_position) from daybook.view_key`,
		},
		"key null": {
			projection: "view_key", different: 1, columns: []string{"mode"},
			damage: `update daybook.view_key set mode = null
				where first_position = (select max(first_position) from daybook.view_key)`,
			first: `select max(first_position) from daybook.view_key`,
		},
		"rate differs": {
			projection: "view_decision_rate", different: 1, columns: []string{"decisions"},
			damage: `update daybook.view_decision_rate set decisions = 0
				where first_position = (select max(first_position) from daybook.view_decision_rate)`,
			first: `select max(first_position) from daybook.view_decision_rate`,
		},
		"rate in another minute": {
			projection: "view_decision_rate", missing: 1, extra: 1,
			damage: `update daybook.view_decision_rate set minute = minute + interval '1 year'
				where first_position = (select max(first_position) from daybook.view_decision_rate)`,
			first: `select max(first_position) from daybook.view_decision_rate`,
		},
		"conflict with other fields": {
			projection: "view_conflict", different: 1, columns: []string{"fields"},
			damage: `update daybook.view_conflict set fields = '{}'
				where position = (select min(position) from daybook.view_conflict)`,
			first: `select min(position) from daybook.view_conflict`,
		},
		"conflict extra": {
			projection: "view_conflict", extra: 1,
			damage: `insert into daybook.view_conflict
				select (c).*
				from (
					select jsonb_populate_record(c, jsonb_build_object('position', 100000)) as c
					from daybook.view_conflict as c
					limit 1
				) as copied`,
			first: `select 100000::bigint`,
		},
		"job missing": {
			projection: "view_job", missing: 1,
			damage: `delete from daybook.view_job where first_position = (select min(first_position) from daybook.view_job)`,
			first:  `select min(first_position) from daybook.view_job`,
		},
		"job extra": {
			projection: "view_job", extra: 1,
			damage: `insert into daybook.view_job (job_id, first_position, last_position, attempt, attempt_budget, state, queue, type)
				values ('00000000-0000-0000-0000-000000000007', 7, 7, 0, 1, 'waiting', 'q', 't')`,
			first: `select 7::bigint`,
		},
		"job differs": {
			projection: "view_job", different: 1, columns: []string{"attempt", "state"},
			damage: `update daybook.view_job set attempt = attempt + 1, state = case state when 'active' then 'failed' else 'active' end
				where first_position = (select max(first_position) from daybook.view_job)`,
			first: `select max(first_position) from daybook.view_job`,
		},
		"job null": {
			projection: "view_job", different: 1, columns: []string{"key_preview"},
			damage: `update daybook.view_job set key_preview = null
				where first_position = (select min(first_position) from daybook.view_job where key_preview is not null)`,
			first: `select min(first_position) from daybook.view_job where key_preview is not null`,
		},
		"conflict missing": {
			projection: "view_conflict", missing: 1,
			damage: `delete from daybook.view_conflict where position = (select max(position) from daybook.view_conflict)`,
			first:  `select max(position) from daybook.view_conflict`,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			newStoryteller(1, 30).tell(t, db, 400)
			catchUp(t, db, 0)
			p := builtin(t, test.projection)
			if report := verify(t, db, p); !report.OK || report.Position != 400 || report.Tables[0].Rows == 0 {
				t.Fatalf("before the damage: %+v", report)
			}
			first := queryOne[ledger.Position](t, db, test.first)
			db.Exec(t, test.damage)
			report := verify(t, db, p)
			if report.OK {
				t.Fatal("the damage was not found")
			}
			got := report.Tables[0]
			var columns []string
			for _, sample := range got.Samples {
				columns = append(columns, sample.Columns...)
				if len(sample.Key) > 200 || strings.Contains(sample.Key, "\\x") {
					t.Errorf("key %s", sample.Key)
				}
			}
			got.Samples, got.Rows = nil, 0
			want := projections.TableReport{
				Table: test.projection, Missing: test.missing, Extra: test.extra, Different: test.different, FirstPosition: first,
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.columns, columns); diff != "" {
				t.Errorf("columns (-want +got):\n%s", diff)
			}
			// A rebuild heals it.
			rebuild(t, db, p, projections.RebuildConfig{})
			if report := verify(t, db, p); !report.OK {
				t.Errorf("after the rebuild: %+v", report)
			}
		})
	}
}

func TestVerifyFindsSkippedAndRepeatedEvents(t *testing.T) {
	t.Parallel()
	for name, move := range map[string]string{
		"skipped":  `update daybook.cursor set position = 200 where name like 'projection:%'`,
		"repeated": `update daybook.cursor set position = 90 where name like 'projection:%'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			story := newStoryteller(1, 30)
			story.tell(t, db, 100)
			catchUp(t, db, 0)
			story.tell(t, db, 300)
			db.Exec(t, move)
			rate := builtin(t, "view_decision_rate")
			if _, err := runner(t, rate).CatchUp(t.Context(), db.Pool, 0); err != nil {
				t.Fatal(err)
			}
			report := verify(t, db, rate)
			if report.OK || report.Position != 400 || report.Tables[0].Different == 0 {
				t.Errorf("%+v", report)
			}
			if n := len(report.Tables[0].Samples); n > projections.MaxSamples {
				t.Errorf("%d samples", n)
			}
		})
	}
}

func TestVerifyBesideRunnersAndRebuilds(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.MaxConns(20))
	ctx := t.Context()
	story := newStoryteller(1, 50)
	story.tell(t, db, 500)
	catchUp(t, db, 0)
	var stop atomic.Bool
	var busy sync.WaitGroup
	busy.Go(func() {
		group := builtinGroup(t)
		for !stop.Load() {
			story.tell(t, db, 20)
			if _, err := group.CatchUp(ctx, db.Pool, 10); err != nil {
				t.Error(err)
				return
			}
		}
	})
	busy.Go(func() {
		for !stop.Load() {
			_, err := projections.Rebuild(ctx, db.Pool, builtin(t, "view_key"), projections.RebuildConfig{})
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 5 {
		for _, p := range projections.Builtin() {
			report, err := projections.Verify(ctx, db.Pool, p)
			if err != nil || !report.OK {
				t.Errorf("%+v, %v", report, err)
			}
		}
	}
	stop.Store(true)
	busy.Wait()
}

func TestVerifyLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	newStoryteller(1, 30).tell(t, db, 100)
	catchUp(t, db, 0)
	for range 3 {
		for _, p := range projections.Builtin() {
			verify(t, db, p)
		}
	}
	pgtest.WaitFor(t, 30*time.Second, func() bool {
		return queryOne[int](t, db, `select count(*) from pg_class where relname like 'view\_%' and relpersistence = 't'`) == 0
	}, "temporary tables are left")
}

func TestVerifyOfAnotherEpochOrVersion(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	newStoryteller(1, 30).tell(t, db, 100)
	catchUp(t, db, 0)
	p := builtin(t, "view_key")
	newer := p
	newer.Version = 2
	var versionErr *projections.VersionError
	if _, err := projections.Verify(t.Context(), db.Pool, newer); !errors.As(err, &versionErr) {
		t.Errorf("%v, want a VersionError", err)
	}
	db.Exec(t, `update daybook.meta set epoch = epoch + 1`)
	var epochErr *ledger.EpochError
	if _, err := projections.Verify(t.Context(), db.Pool, p); !errors.As(err, &epochErr) {
		t.Errorf("%v, want an EpochError", err)
	}
}
