package outbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// backlog is how many events the benchmarks have before them. Bodies are as small as appendEvents makes them.
const backlog = 100_000

func sequencedBacklog(b *testing.B) *pgtest.DB {
	b.Helper()
	db := pgtest.New(b)
	appendEvents(b, db, ledger.KindJobStarted, backlog)
	if _, err := ledger.Sequence(b.Context(), db.Pool); err != nil {
		b.Fatal(err)
	}
	return db
}

func reportRate(b *testing.B, events int) {
	b.Helper()
	b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkSubscriber hands a backlog to a handler that does nothing.
func BenchmarkSubscriber(b *testing.B) {
	for name, topic := range map[string]string{"all": outbox.TopicAll, "kind": outbox.Topic(ledger.KindJobStarted)} {
		b.Run(name, func(b *testing.B) {
			db := sequencedBacklog(b)
			subscriber := newSubscriber(b, outbox.Config{Pool: db.Pool})
			b.ResetTimer()
			messages := subscribe(b, subscriber, topic)
			for range backlog {
				receive(b, messages).Ack()
			}
			b.StopTimer()
			reportRate(b, backlog)
		})
	}
}

// BenchmarkRareKind passes over a backlog of other kinds to the one event of its kind.
func BenchmarkRareKind(b *testing.B) {
	db := sequencedBacklog(b)
	appendEvents(b, db, ledger.KindJobFailed, 1)
	subscriber := newSubscriber(b, outbox.Config{Pool: db.Pool})
	b.ResetTimer()
	receive(b, subscribe(b, subscriber, outbox.Topic(ledger.KindJobFailed))).Ack()
	b.StopTimer()
	reportRate(b, backlog)
}

// BenchmarkLatency is the time from commit to handler on an idle ledger, whoever sequences: here the subscriber itself.
func BenchmarkLatency(b *testing.B) {
	db := pgtest.New(b)
	queue := newQueue(b, db)
	messages := subscribe(b, newSubscriber(b, outbox.Config{Pool: db.Pool, PollInterval: outbox.DefaultPollInterval}), outbox.TopicAll)
	var total time.Duration
	for range b.N {
		if _, err := queue.Enqueue(b.Context(), benchRequest()); err != nil {
			b.Fatal(err)
		}
		committed := time.Now()
		msg := receive(b, messages)
		total += time.Since(committed)
		msg.Ack()
	}
	b.ReportMetric(total.Seconds()*1000/float64(b.N), "ms/event")
}

// emptyFold is a projection that reads its range, does nothing with it, and moves its cursor.
type emptyFold struct{ *tally }

func (p emptyFold) Apply(ctx context.Context, tx pgx.Tx, from ledger.Cursor, through ledger.Position) error {
	if _, _, err := ledger.Read(ctx, tx, from.Position, int(through-from.Position)); err != nil {
		return err
	}
	return ledger.MoveCursor(ctx, tx, p.cursor(), from, through)
}

// BenchmarkProjector folds a backlog: by reading it in Go, and by a count in SQL; and what a plain pgx loop takes for
// the same reading.
func BenchmarkProjector(b *testing.B) {
	for _, name := range []string{"go", "sql"} {
		b.Run(name, func(b *testing.B) {
			db := sequencedBacklog(b)
			p := newTally(b, db, "one")
			handler := map[string]outbox.RangeHandler{"go": emptyFold{p}, "sql": p}[name]
			projector := newProjector(b, db.Pool, 0, handler)
			b.ResetTimer()
			stop := run(b, projector)
			waitCursor(b, db, p.cursor(), backlog)
			b.StopTimer()
			reportRate(b, backlog)
			if err := stop(); err != nil {
				b.Error(err)
			}
		})
	}
	b.Run("plain loop", func(b *testing.B) {
		db := sequencedBacklog(b)
		p := emptyFold{newTally(b, db, "one")}
		b.ResetTimer()
		cursor, err := p.Open(b.Context(), db.Pool)
		if err != nil {
			b.Fatal(err)
		}
		for cursor.Position < backlog {
			through := cursor.Position + outbox.DefaultRangeSize
			err := pgx.BeginFunc(b.Context(), db.Pool, func(tx pgx.Tx) error { return p.Apply(b.Context(), tx, cursor, through) })
			if err != nil {
				b.Fatal(err)
			}
			cursor.Position = through
		}
		b.StopTimer()
		reportRate(b, backlog)
	})
}
