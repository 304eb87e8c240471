package projections_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/projections"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// benchEvents is how many events each round folds.
const benchEvents = 100_000

// fill appends accepted events as daybook.enqueue would, of so many keys, and one conflict in twenty.
func fill(b *testing.B, db *pgtest.DB, count, keys int) {
	b.Helper()
	db.Exec(b, `
		insert into daybook.event (recorded_at, job_id, key_hash, kind, scope, key_preview, body)
		select
			timestamptz '2026-03-01' + i * interval '2 milliseconds', gen_random_uuid(), sha256((i % $2)::text::bytea),
			case when i % 20 = 0 then 'enqueue.conflict_rejected' else 'enqueue.accepted' end, 'scope-' || i % 5, 'order-12…',
			format('{"v":1,"job_id":"%s","type":"type-%s","queue":"default","priority":0,"attempt_budget":25,"payload_bytes":120,'
				|| '"request_digest":"%s","run_at":"2026-12-01T12:24:09.123456Z","mode":"idempotency","scope":"default",'
				|| '"key_digest":"aabbccddeeff","key_preview":"order-12…","window_ms":86400000,"fields":["payload"],'
				|| '"existing_mode":"idempotency","expires_at":"2026-12-02T12:24:09.123456Z"}',
				gen_random_uuid(), i % 7, repeat('ab', 33))::json
		from generate_series(1, $1::bigint) as i`, count, keys)
	sequence(b, db)
	db.Exec(b, `vacuum analyze`)
}

// startOver empties the views, outside of what is measured.
func startOver(b *testing.B, db *pgtest.DB) {
	b.Helper()
	b.StopTimer()
	db.Exec(b, `truncate daybook.view_key, daybook.view_conflict, daybook.view_decision_rate, daybook.view_job; delete from daybook.cursor`)
	db.Exec(b, `checkpoint`)
	b.StartTimer()
}

func report(b *testing.B, events int) {
	b.ReportMetric(float64(events)*float64(b.N)/b.Elapsed().Seconds(), "events/s")
}

// BenchmarkProject compares the runner with a plain pgx loop that folds the same.
func BenchmarkProject(b *testing.B) {
	for _, keys := range []int{benchEvents, 1000} {
		db := pgtest.New(b)
		fill(b, db, benchEvents, keys)
		for _, p := range projections.Builtin() {
			b.Run(fmt.Sprintf("keys=%d/%s/runner", keys, p.Name), func(b *testing.B) {
				for range b.N {
					startOver(b, db)
					if _, err := runner(b, p).CatchUp(b.Context(), db.Pool, 0); err != nil {
						b.Fatal(err)
					}
				}
				report(b, benchEvents)
			})
			b.Run(fmt.Sprintf("keys=%d/%s/plain_loop", keys, p.Name), func(b *testing.B) {
				for range b.N {
					startOver(b, db)
					plainLoop(b, db, p)
				}
				report(b, benchEvents)
			})
		}
		b.Run(fmt.Sprintf("keys=%d/all/runner", keys), func(b *testing.B) {
			for range b.N {
				startOver(b, db)
				catchUp(b, db, 0)
			}
			report(b, benchEvents)
		})
		b.Run(fmt.Sprintf("keys=%d/read_only", keys), func(b *testing.B) {
			for range b.N {
				for at := ledger.Position(0); at < benchEvents; {
					_, through, err := ledger.Read(b.Context(), db.Pool, at, projections.DefaultBatch)
					if err != nil {
						b.Fatal(err)
					}
					at = through
				}
			}
			report(b, benchEvents)
		})
	}
}

// plainLoop is what one would write without this package: read, fold, move the cursor, commit.
func plainLoop(b *testing.B, db *pgtest.DB, p projections.Projection) {
	b.Helper()
	ctx := b.Context()
	cursor, err := ledger.OpenCursor(ctx, db.Pool, "plain", 0)
	for err == nil && cursor.Position < benchEvents {
		err = pgx.BeginFunc(ctx, db.Pool, func(tx pgx.Tx) error {
			return plainStep(ctx, tx, p, &cursor)
		})
	}
	if err != nil {
		b.Fatal(err)
	}
}

func plainStep(ctx context.Context, tx pgx.Tx, p projections.Projection, cursor *ledger.Cursor) error {
	events, through, err := ledger.Read(ctx, tx, cursor.Position, projections.DefaultBatch, p.Kinds...)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `set local search_path = daybook`); err != nil {
		return err
	}
	if len(events) > 0 {
		if err := p.Fold(ctx, tx, events); err != nil {
			return err
		}
	}
	if err := ledger.MoveCursor(ctx, tx, "plain", *cursor, through); err != nil {
		return err
	}
	cursor.Position = through
	return nil
}

// aggregates fill a view by one SQL statement, in the plainest way, as far as the events of this benchmark go.
var aggregates = map[string]string{
	"view_conflict": `
		insert into daybook.view_conflict (position, rejected_at, bound_at, expires_at, existing_job_id, key_digest, scope, key_preview,
			queue, type, mode, existing_mode, fields, request_digest, existing_request_digest)
		select o.position, e.recorded_at, (e.body ->> 'bound_at')::timestamptz, (e.body ->> 'expires_at')::timestamptz, e.job_id,
			daybook.key_digest(e.key_hash), e.scope, e.key_preview, e.body ->> 'queue', e.body ->> 'type', e.body ->> 'mode',
			e.body ->> 'existing_mode', array(select json_array_elements_text(e.body -> 'fields')), e.body ->> 'request_digest', ''
		from daybook.ledger_order as o join daybook.event as e on e.event_id = o.event_id
		where e.kind = 'enqueue.conflict_rejected'`,
	"view_decision_rate": `
		insert into daybook.view_decision_rate (minute, decisions, first_position, scope, queue, type, outcome)
		select date_trunc('minute', e.recorded_at), count(*), min(o.position), coalesce(e.scope, ''), e.body ->> 'queue',
			e.body ->> 'type', substr(e.kind, 9)
		from daybook.ledger_order as o join daybook.event as e on e.event_id = o.event_id
		group by 1, 4, 5, 6, 7`,
	"view_job": `
		insert into daybook.view_job (job_id, accepted_at, next_run_at, first_position, last_position, attempt, attempt_budget, state,
			queue, type, key_digest, scope, key_preview)
		select e.job_id, min(e.recorded_at), max((e.body ->> 'run_at')::timestamptz), min(o.position), max(o.position), 0,
			max((e.body ->> 'attempt_budget')::integer), 'waiting', max(e.body ->> 'queue'), max(e.body ->> 'type'),
			min(daybook.key_digest(e.key_hash)), min(e.scope), min(e.key_preview)
		from daybook.ledger_order as o join daybook.event as e on e.event_id = o.event_id
		where e.kind = 'enqueue.accepted'
		group by 1`,
	"view_key": `
		insert into daybook.view_key (key_hash, scope, key_preview, accepted, replaced, non_replaceable, conflicts,
			first_position, last_position, first_decision_at, last_decision_at, job_id, mode, expires_at, last_outcome)
		select e.key_hash, min(e.scope), min(e.key_preview), count(*) filter (where e.kind = 'enqueue.accepted'), 0, 0,
			count(*) filter (where e.kind = 'enqueue.conflict_rejected'), min(o.position), max(o.position),
			min(e.recorded_at), max(e.recorded_at), (array_agg(e.job_id order by o.position desc))[1],
			max(e.body ->> 'mode'), max((e.body ->> 'expires_at')::timestamptz), 'accepted'
		from daybook.ledger_order as o join daybook.event as e on e.event_id = o.event_id
		where e.key_hash is not null
		group by 1`,
}

// BenchmarkRebuild compares a rebuild with one SQL aggregate into the live table, in turns, by the medians of five. The
// server is one of its own with PostgreSQL's own durability.
func BenchmarkRebuild(b *testing.B) {
	const rounds = 5
	cluster := pgtest.NewCluster(b, map[string]string{"shared_buffers": "256MB"})
	for _, keys := range []int{benchEvents, 1000} {
		db := cluster.New(b)
		fill(b, db, benchEvents, keys)
		for _, p := range projections.Builtin() {
			b.Run(fmt.Sprintf("keys=%d/%s", keys, p.Name), func(b *testing.B) {
				for range b.N {
					var ours, plain []time.Duration
					for range rounds {
						startOver(b, db)
						start := time.Now()
						rebuild(b, db, p, projections.RebuildConfig{DropOld: true})
						ours = append(ours, time.Since(start))
						startOver(b, db)
						start = time.Now()
						db.Exec(b, aggregates[p.Name])
						plain = append(plain, time.Since(start))
					}
					slices.Sort(ours)
					slices.Sort(plain)
					b.ReportMetric(benchEvents/ours[rounds/2].Seconds(), "rebuilt/s")
					b.ReportMetric(benchEvents/plain[rounds/2].Seconds(), "aggregated/s")
					b.ReportMetric(plain[rounds/2].Seconds()/ours[rounds/2].Seconds(), "ratio")
				}
			})
		}
	}
}

// BenchmarkProjector folds a backlog into all views, each in transactions of its own and all in one.
func BenchmarkProjector(b *testing.B) {
	db := pgtest.New(b)
	fill(b, db, benchEvents, benchEvents)
	var handlers []outbox.RangeHandler
	for _, p := range projections.Builtin() {
		handlers = append(handlers, runner(b, p))
	}
	config := outbox.ProjectorConfig{Pool: db.Pool}
	for name, make := range map[string]func() (*outbox.Projector, error){
		"apart":    func() (*outbox.Projector, error) { return outbox.NewProjector(config, handlers...) },
		"together": func() (*outbox.Projector, error) { return outbox.NewGroupProjector(config, builtinGroup(b)) },
	} {
		b.Run(name, func(b *testing.B) {
			for range b.N {
				startOver(b, db)
				p, err := make()
				if err != nil {
					b.Fatal(err)
				}
				stop := run(b, p)
				waitPlace(b, db, benchEvents, builtinGroup(b).Names()...)
				if err := stop(); err != nil {
					b.Fatal(err)
				}
			}
			report(b, benchEvents)
		})
	}
}
