package outbox

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

const patience = time.Minute

// counted makes a database that counts how often it is asked for the last event id, and how often it sequences. The
// sequences are unlogged, because drawing from another takes an xid, and sequencing would refuse.
func counted(t *testing.T) *pgtest.DB {
	t.Helper()
	db := pgtest.New(t)
	for _, statement := range []string{
		`create unlogged sequence probes minvalue 0 start 0`,
		`create unlogged sequence rounds minvalue 0 start 0`,
		`select nextval('probes'), nextval('rounds')`,
		`create function probed(id bigint) returns bigint language sql as $$
			select id from (select nextval('probes')) as probe $$`,
		`alter sequence daybook.event_event_id_seq rename to drawn`,
		`create view daybook.event_event_id_seq as
			select public.probed(last_value) as last_value, is_called from daybook.drawn`,
		`alter function daybook.sequence rename to sequence_uncounted`,
		`create function daybook.sequence(p_limit int, out sequenced int, out last_position bigint, out more boolean)
			language plpgsql as $$
			begin
				perform nextval('public.rounds');
				select s.* into sequenced, last_position, more from daybook.sequence_uncounted(p_limit) as s;
			end $$`,
	} {
		db.Exec(t, statement)
	}
	return db
}

func number(t *testing.T, db *pgtest.DB, query string) int64 {
	t.Helper()
	var n int64
	if err := db.Pool.QueryRow(t.Context(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func rounds(t *testing.T, db *pgtest.DB) int64 {
	t.Helper()
	return number(t, db, `select last_value from rounds`)
}

// waitProbes waits until so many more questions were asked.
func waitProbes(t *testing.T, db *pgtest.DB, more int64) {
	t.Helper()
	const asked = `select last_value from probes`
	before := number(t, db, asked)
	pgtest.WaitFor(t, patience, func() bool { return number(t, db, asked) >= before+more }, "%d more probes", more)
}

// draw appends an event in a transaction that is still open.
const draw = `
	insert into daybook.event (recorded_at, kind, body)
	select clock_timestamp(), 'job.started', '{"v": 1}'
	from (select pg_current_xact_id()) as first`

// probing returns a reader that has nothing but the probe: it polls after an hour, and nobody else sequences.
func probing(t *testing.T, db *pgtest.DB, config listenerConfig) *waiter {
	t.Helper()
	if config.pool == nil {
		config.pool = db.Pool
	}
	config.logger, config.retry = slog.New(slog.DiscardHandler), time.Millisecond
	l := newListener(config)
	t.Cleanup(l.close)
	w := newWaiter(l, time.Hour)
	t.Cleanup(w.leave)
	return w
}

// hear waits until positions beyond head are given.
func (w *waiter) hear(t *testing.T, head ledger.Position) {
	t.Helper()
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		for !w.given && t.Context().Err() == nil {
			w.next = time.Hour
			w.wait(t.Context(), head)
		}
		w.given = false
	}()
	select {
	case <-heard:
	case <-time.After(patience):
		t.Fatalf("nothing is heard of a position beyond %d", head)
	}
}

func TestProbeSequencesWhatNobodyElseDoes(t *testing.T) {
	t.Parallel()
	for name, pollOnly := range map[string]bool{"listening": false, "poll only": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := counted(t)
			w := probing(t, db, listenerConfig{pollOnly: pollOnly, probe: time.Millisecond, longest: time.Hour})
			for head := range ledger.Position(5) {
				db.Exec(t, draw)
				w.hear(t, head)
			}
			// Everything has its position, and then there is no reason to look again.
			waitProbes(t, db, 10)
			before := rounds(t, db)
			waitProbes(t, db, 200)
			if more := rounds(t, db) - before; more != 0 {
				t.Errorf("%d rounds of sequencing although nothing was drawn", more)
			}
		})
	}
}

// Switched off, it neither asks nor sequences; what others have sequenced is heard of as ever.
func TestNoProbe(t *testing.T) {
	t.Parallel()
	db := counted(t)
	w := probing(t, db, listenerConfig{probe: -1, longest: time.Hour})
	pgtest.WaitFor(t, patience, func() bool {
		return number(t, db, `
			select count(*) from pg_stat_activity
			where datname = current_database() and query ilike 'listen%'`) == 1
	}, "it listens")
	db.Exec(t, draw)
	db.Exec(t, `select pg_notify($1, '7')`, ledger.NotifyChannel)
	w.hear(t, 6)
	if probes, rounds := number(t, db, `select last_value from probes`), rounds(t, db); probes+rounds != 0 {
		t.Errorf("%d probes, %d rounds of sequencing", probes, rounds)
	}
	if newListener(listenerConfig{pollOnly: true, probe: -1}) != nil {
		t.Error("a listener that neither listens nor probes")
	}
}

// A transaction that has drawn ids and stays open: the looks become rare, however many ids it draws, and find what it
// commits at last.
func TestProbeBacksOff(t *testing.T) {
	t.Parallel()
	db := counted(t)
	w := probing(t, db, listenerConfig{probe: time.Millisecond, longest: time.Hour})
	waitProbes(t, db, 1)
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	for range 20 {
		if _, err := tx.Exec(t.Context(), draw); err != nil {
			t.Fatal(err)
		}
		waitProbes(t, db, 20)
	}
	// They double from 1 ms on, so that there are at most 17 in a minute.
	if rounds := rounds(t, db); rounds < 2 || rounds > 20 {
		t.Errorf("%d rounds of sequencing in more than 400 probes, want 2 to 20", rounds)
	}
	// Somebody else's events are found meanwhile, and after them the looks are frequent again.
	before := rounds(t, db)
	for head := range ledger.Position(3) {
		db.Exec(t, draw)
		w.hear(t, head)
	}
	waitProbes(t, db, 200)
	if more := rounds(t, db) - before; more > 60 {
		t.Errorf("%d rounds of sequencing for three events", more)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.hear(t, 3)
}

// Ids that never commit are given up at the longest wait, and the next that is drawn is looked for.
func TestProbeRests(t *testing.T) {
	t.Parallel()
	db := counted(t)
	w := probing(t, db, listenerConfig{probe: time.Millisecond, longest: 8 * time.Millisecond})
	tx, err := db.Pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), draw); err != nil {
		t.Fatal(err)
	}
	waitProbes(t, db, 100)
	before := rounds(t, db)
	waitProbes(t, db, 200)
	if more := rounds(t, db) - before; more != 0 {
		t.Errorf("%d rounds of sequencing while one id is waited for", more)
	}
	db.Exec(t, draw)
	w.hear(t, 0)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	db.Exec(t, draw)
	w.hear(t, 1)
}

// Between two questions there is neither a transaction nor a snapshot; and a connection that breaks is made again.
func TestProbeHoldsNothingAndComesBack(t *testing.T) {
	t.Parallel()
	db := counted(t)
	w := probing(t, db, listenerConfig{probe: time.Millisecond, longest: time.Hour})
	const mine = `
		from pg_stat_activity
		where datname = current_database() and query like '-- listening on daybook_sequenced%'`
	for range 3 {
		waitProbes(t, db, 10)
		idle := 0
		for idle < 30 {
			var state string
			var xmin *string
			err := db.Pool.QueryRow(t.Context(), `select state, backend_xmin::text `+mine).Scan(&state, &xmin)
			if errors.Is(err, pgx.ErrNoRows) { // it connects
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if state != "active" {
				idle++
			}
			if state != "active" && state != "idle" || state == "idle" && xmin != nil {
				t.Fatalf("between two probes it is %s, with xmin %v", state, xmin)
			}
		}
		head := ledger.Position(number(t, db, `select position from daybook.sequencer`))
		db.Exec(t, `select pg_terminate_backend(pid) `+mine)
		db.Exec(t, draw)
		w.hear(t, head)
	}
}

// Where the probe is refused, listening goes on without.
func TestProbeRefused(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(t, `revoke select on sequence daybook.event_event_id_seq from daybook_relay`)
	pool := db.AsRole(t, "daybook_relay")
	for name, pollOnly := range map[string]bool{"listening": false, "poll only": true} {
		w := probing(t, db, listenerConfig{pool: pool, pollOnly: pollOnly, probe: time.Millisecond, longest: time.Hour})
		pgtest.WaitFor(t, patience, func() bool { return w.listener.refused.Load() }, "%s: it has given the probe up", name)
		if !pollOnly {
			db.Exec(t, `select pg_notify($1, '1')`, ledger.NotifyChannel)
			w.hear(t, 0)
		}
		w.listener.close()
	}
}
