package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/tests/pgtest"
)

func testStatus(t *testing.T, d daybook) {
	db := newDB(t)
	status := call{args: []string{"status"}, url: db.URL}
	golden(t, "status-empty", withoutAges(d.ok(t, status)))
	enqueueSome(t, d, db.URL)
	golden(t, "status-nobody-runs", withoutAges(d.ok(t, status)))
	d.ok(t, call{args: []string{"project", "--once"}, url: db.URL})
	golden(t, "status-projected", withoutAges(d.ok(t, status)))
	status.args = append(status.args, "--json")
	golden(t, "status-json", d.ok(t, status))
}

func testStatusCheck(t *testing.T, d daybook) {
	db := pgtest.New(t)
	check := checkStatus(t, d, db)
	check(0, "gaps: none")
	check(4, "unhealthy: view_key has never run here", "--expect", "view_key")
	d.ok(t, call{args: []string{"enqueue", "--type", "t"}, url: db.URL})
	check(4, "unhealthy: nobody reads the ledger: no subscriber, projection or relay has ever run here")

	// As long as somebody runs all is well, and an operator who may not know who does is not alarmed.
	projecting := d.follow(t, call{args: []string{"project"}, url: db.URL})
	pgtest.WaitFor(t, patience, func() bool {
		return d.run(t, call{args: []string{"status", "--check", "--expect", "view_key"}, url: db.URL}).code == 0
	}, "status --check finds nothing wrong")
	following := d.follow(t, call{args: []string{"events", "--follow", "--json"}, url: db.URL})
	following.next(t)
	// A runner beats before it has read anything.
	wait(t, db, `select count(*) = 4 from daybook.cursor where name like 'projection:%' and position = 1`)
	projecting.end(t, os.Interrupt)
	check(4, "unhealthy: nobody listens")

	// Who has run once is missed, although his lag is 0 and nobody has to listen; until he is not to run any more.
	db.Exec(t, `update daybook.runner_beat set beat_at = beat_at - interval '1 hour'`)
	check(4, "unhealthy: projection view_key is not running: last heard of 1 h 0 min ago, process ", "--poll-only")
	check(0, "view_key  ", "--poll-only", "--max-beat-age", "2h")
	for _, name := range []string{"view_conflict", "view_decision_rate", "view_job", "projection:view_key"} {
		d.ok(t, call{args: []string{"status", "--forget", name}, url: db.URL})
	}
	if r := d.run(t, call{args: []string{"status", "--forget", "view_key"}, url: db.URL}); r.code != 1 || !strings.Contains(r.stderr, "has ever been heard of") {
		t.Errorf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	// Parked events want somebody, too.
	db.Exec(t, `insert into daybook.parked (relay, position, event_id, attempts, order_key, reason) values ('nats', 1, 1, 5, '\x00', 'too large')`)
	check(4, "unhealthy: 1 event is parked, the first ", "--poll-only")
	check(0, "parked: 1 event, the first ", "--poll-only", "--max-parked", "1")
	db.Exec(t, `update daybook.parked set redriven_at = now()`)
	check(0, "nobody listens", "--poll-only")
	db.Exec(t, `update daybook.parked set redriven_at = null`)
	check(4, "unhealthy: 1 event is parked, the first ", "--poll-only")
	d.ok(t, call{args: []string{"parked", "discard", "nats", "1", "--actor", "ann", "--reason", "too large"}, url: db.URL})
	check(0, "nobody listens", "--poll-only")
	if r := d.run(t, call{args: []string{"status", "--check"}, url: db.RoleURL("daybook_operator")}); r.code != 0 || !strings.Contains(r.stdout, "running: not known") {
		t.Errorf("exit code %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	following.end(t, os.Interrupt)

	// Nobody runs any more: as soon as something commits, everything is late.
	db.SetClock(t, time.Now().Add(-time.Hour))
	d.ok(t, call{args: []string{"enqueue", "--type", "t"}, url: db.URL})
	db.ResetClock(t)
	check(4, "unhealthy: sequencing has waited for 1 h")
	check(4, "unhealthy: projection view_key has waited for 1 h")
	check(0, "view_key", "--poll-only", "--max-lag", "2h", "--max-lag-events", "1")
	d.ok(t, call{args: []string{"enqueue", "--type", "t"}, url: db.URL})
	check(4, "unhealthy: projection view_key is 2 events behind", "--max-lag", "2h", "--max-lag-events", "1")
}

// checkStatus returns a call of status --check that fails the test where it ends otherwise.
func checkStatus(t *testing.T, d daybook, db *pgtest.DB) func(wantCode int, wantProblem string, flags ...string) {
	return func(wantCode int, wantProblem string, flags ...string) {
		t.Helper()
		r := d.run(t, call{args: append([]string{"status", "--check"}, flags...), url: db.URL})
		if r.code != wantCode || !strings.Contains(r.stdout, wantProblem) {
			t.Errorf("exit code %d, want %d and %q\n%s%s", r.code, wantCode, wantProblem, r.stdout, r.stderr)
		}
	}
}

// Nobody has to project: where only a subscriber runs all is well, until it does not. A rebuild alone is no reader.
func testStatusWithoutProjections(t *testing.T, d daybook) {
	db := pgtest.New(t)
	check := checkStatus(t, d, db)
	d.ok(t, call{args: []string{"enqueue", "--type", "t"}, url: db.URL})
	db.Exec(t, `insert into daybook.cursor (name, epoch, position) values ('rebuild:view_key', 1, 0)`)
	check(4, "unhealthy: nobody reads the ledger: ", "--poll-only")
	db.Exec(t, `delete from daybook.cursor`)

	// One that stands by is heard of and has no cursor.
	db.Exec(t, `insert into daybook.runner_beat (name, kind, host, pid) values ('relay:nats', 'relay', 'shop', 1)`)
	check(0, "nobody listens", "--poll-only")
	check(4, "unhealthy: relay nats is not running: ", "--poll-only", "--max-beat-age", "0s")
	db.Exec(t, `delete from daybook.runner_beat`)

	subscriber, err := outbox.NewSubscriber(outbox.Config{Pool: db.AsRole(t, "daybook_relay"), ConsumerGroup: "invoices"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = subscriber.Close() }()
	messages, err := subscriber.Subscribe(t.Context(), outbox.Topic(ledger.KindAccepted))
	if err != nil {
		t.Fatal(err)
	}
	(<-messages).Ack()
	check(0, "running: 1 process listens")
	check(4, "unhealthy: view_key has never run here", "--expect", "view_key")
	if err := subscriber.Close(); err != nil {
		t.Fatal(err)
	}
	check(4, "unhealthy: nobody listens")
}

func testOperator(t *testing.T, d daybook) {
	db := newDB(t)
	enqueueSome(t, d, db.URL)
	d.ok(t, call{args: []string{"project", "--once"}, url: db.RoleURL("daybook_relay")})
	operator := db.RoleURL("daybook_operator")
	for _, args := range []string{"events", "keys", "keys explain", "conflicts", "rates", "status"} {
		r := d.run(t, call{args: strings.Fields(args), stdin: orderKey, url: operator})
		if r.code != 0 || r.stdout == "" {
			t.Errorf("daybook %s as daybook_operator: exit code %d\n%s", args, r.code, r.stderr)
		}
	}
	r := d.run(t, call{args: []string{"enqueue", "--type", "t"}, url: operator})
	if r.code != 1 || !strings.Contains(r.stderr, "hint: connect as a member of daybook_operator to look") {
		t.Errorf("exit code %d\n%s", r.code, r.stderr)
	}
}

// testStatusOfGaps: a transaction that has drawn an id and not ended holds a gap, and is told with pid, age and the start
// of its query, also when it is prepared. An operator sees pid and database, and no more.
func testStatusOfGaps(t *testing.T, d daybook) {
	// A cluster of its own: the oldest transaction of a shared one may be somebody else's.
	cluster := pgtest.NewCluster(t, map[string]string{"max_prepared_transactions": "1", "autovacuum": "off", "fsync": "off"})
	db := cluster.New(t)
	holder, err := pgx.Connect(t.Context(), db.URL+"&application_name=slow%20shop")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Close(t.Context()) }()
	// The holder draws an id, somebody else the next one, and the head passes both.
	begin := func() {
		t.Helper()
		for _, sql := range []string{"begin", appendEvent} {
			if _, err := holder.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
		}
		db.Exec(t, appendEvent)
		if _, err := ledger.Sequence(t.Context(), db.Pool); err != nil {
			t.Fatal(err)
		}
	}
	read := func(db ledger.Querier, wantUnsequenced int64) ledger.Gaps {
		t.Helper()
		status, err := ledger.ReadStatus(t.Context(), db)
		if err != nil {
			t.Fatal(err)
		}
		if status.Unsequenced.Events != wantUnsequenced {
			t.Errorf("%d events wait, want %d", status.Unsequenced.Events, wantUnsequenced)
		}
		return status.Gaps
	}

	begin()
	// What has not committed does not wait.
	gaps := read(db.Pool, 0)
	if gaps.Count != 1 || gaps.IDs != 1 || gaps.Holder == nil {
		t.Fatalf("got %+v, want one gap of one id, and who holds it", gaps)
	}
	h := gaps.Holder
	if h.Age <= 0 || h.QueryStart.IsZero() || h.State != "idle in transaction" {
		t.Errorf("got %+v, want its age and its last query", h)
	}
	pid := int32(holder.PgConn().PID())
	operator := read(db.AsRole(t, "daybook_operator"), 0).Holder
	for _, h := range []*ledger.GapHolder{h, operator} {
		if h == nil || h.PID != pid || h.Database != db.Name || h.ApplicationName != "slow shop" {
			t.Errorf("got %+v, want process %d", h, pid)
		}
	}
	if operator.Age != 0 || operator.State != "" {
		t.Errorf("got %+v: an operator may not know", operator)
	}

	anonymous := strings.NewReplacer(fmt.Sprintf("process %d", pid), "process PID", "xid "+h.XID, "xid XID", db.Name, "DATABASE")
	text := withoutAges(d.ok(t, call{args: []string{"status"}, url: db.URL}))
	golden(t, "status-gap", anonymous.Replace(text))
	text = withoutAges(d.ok(t, call{args: []string{"status"}, url: db.RoleURL("daybook_operator")}))
	golden(t, "status-gap-operator", anonymous.Replace(text))
	var report struct {
		Gaps struct {
			Holder struct {
				PID        int32      `json:"pid"`
				Age        *float64   `json:"age_seconds"`
				QueryStart *time.Time `json:"query_start"`
			} `json:"holder"`
		} `json:"gaps"`
	}
	text = d.ok(t, call{args: []string{"status", "--json"}, url: db.URL})
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if got := report.Gaps.Holder; got.PID != pid || got.Age == nil || got.QueryStart == nil || !got.QueryStart.Equal(h.QueryStart) {
		t.Errorf("want process %d, its age, and its query's start at %v\n%s", pid, h.QueryStart, text)
	}

	// It ends: its event waits until the next round of sequencing, and the gap is forgotten.
	if _, err := holder.Exec(t.Context(), "commit"); err != nil {
		t.Fatal(err)
	}
	read(db.Pool, 1)
	pgtest.WaitFor(t, patience, func() bool {
		_, err := ledger.Sequence(t.Context(), db.Pool)
		return err == nil && read(db.Pool, 0).Count == 0
	}, "the gap is forgotten")

	begin()
	if _, err := holder.Exec(t.Context(), "prepare transaction 'slow'"); err != nil {
		t.Fatal(err)
	}
	if h := read(db.Pool, 0).Holder; h == nil || h.PID != 0 || h.GID != "slow" || h.State != "prepared" || h.Age <= 0 {
		t.Errorf("got %+v, want the prepared transaction", h)
	}
}

// appendEvent appends an event as the ledger's functions do: the xid first.
const appendEvent = `
	with xid as materialized (select pg_current_xact_id())
	insert into daybook.event (recorded_at, kind, body) select daybook.clock(), 'enqueue.accepted', '{"v":1}' from xid`

// TestStatusIsCheap: it reads as many pages of a large ledger as of a small one.
func TestStatusIsCheap(t *testing.T) {
	db := pgtest.New(t)
	grow := func(events int) {
		db.Exec(t, `insert into daybook.event (recorded_at, kind, body)
			select clock_timestamp(), 'enqueue.accepted', '{"v":1}' from generate_series(1, $1)`, events)
		if _, err := ledger.Sequence(t.Context(), db.Pool); err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			db.Exec(t, `insert into daybook.cursor (name, epoch, position) values ($1, 1, 1) on conflict do nothing`, fmt.Sprint("reader/", i))
		}
		db.Exec(t, `analyze daybook.event, daybook.ledger_order, daybook.cursor`)
	}
	pages := func() int64 {
		t.Helper()
		// Once to fill the caches of the session.
		var total int64
		err := pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error {
			for range 2 {
				counting := &explaining{Tx: tx}
				if _, err := ledger.ReadStatus(t.Context(), counting); err != nil {
					return err
				}
				total = counting.pages(t)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return total
	}
	grow(2_000)
	small := pages()
	grow(60_000)
	large := pages()
	if large > small+40 {
		t.Errorf("%d pages of a ledger of 62,000 events, %d of one of 2,000", large, small)
	}
	// A large backlog and gaps that cover most of the ledger have their bounds: a few pages for each event looked at.
	db.Exec(t, `update daybook.sequencer set position = 40000, head = 40000`)
	db.Exec(t, `insert into daybook.sequencer_gap (stamp, ids) values ('999999999', '{[1,39000)}')`)
	if behind := pages(); behind > small+5*11_000 {
		t.Errorf("%d pages with a backlog of 22,000 events and gaps of 39,000", behind)
	}
	db.Exec(t, `update daybook.sequencer set position = 62000, head = 62000`)
	status, err := ledger.ReadStatus(t.Context(), db.Pool)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int64{62_000, 61_999}, []int64{int64(status.Head), status.Cursors[0].Lag.Events}); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// explaining is a Querier that remembers what it was asked.
type explaining struct {
	pgx.Tx
	asked []func(t *testing.T) int64
}

func (e *explaining) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	e.asked = append(e.asked, func(t *testing.T) int64 {
		t.Helper()
		var plan []struct {
			Plan struct {
				Cost float64 `json:"Total Cost"`
				Hit  int64   `json:"Shared Hit Blocks"`
				Read int64   `json:"Shared Read Blocks"`
			}
		}
		var text []byte
		if err := e.Tx.QueryRow(ctx, "explain (analyze, buffers, format json) "+sql, args...).Scan(&text); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &plan); err != nil {
			t.Fatal(err)
		}
		// Beyond jit_above_cost PostgreSQL compiles the statement first, which takes longer than all the rest.
		if cost := plan[0].Plan.Cost; cost > 50_000 {
			t.Errorf("the planner takes it for a cost of %.0f:\n%s", cost, sql)
		}
		return plan[0].Plan.Hit + plan[0].Plan.Read
	})
	return e.Tx.Query(ctx, sql, args...)
}

func (e *explaining) pages(t *testing.T) (total int64) {
	t.Helper()
	for _, ask := range e.asked {
		total += ask(t)
	}
	return total
}

// wait waits until a query answers true.
func wait(t *testing.T, db *pgtest.DB, sql string) {
	t.Helper()
	pgtest.WaitFor(t, patience, func() bool {
		var answer bool
		return db.Pool.QueryRow(t.Context(), sql).Scan(&answer) == nil && answer
	}, "%s", sql)
}
