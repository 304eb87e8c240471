package main

import (
	"context"
	_ "embed" // the statements
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
)

var (
	//go:embed sql/park_events.sql
	parkEventsSQL string
	//go:embed sql/draw_event_id.sql
	drawEventIDSQL string
)

const (
	// scalePages is how many full pages a relay publishes where its statements are timed.
	scalePages = 100
	// scaleTrickle is how many events come one after another while a relay waits at the end of the ledger.
	scaleTrickle = 100
	// scaleParked is how many events are parked meanwhile, every hundredth one, or so many of a shorter ledger.
	scaleParked = 10_000
	// scaleGaps is how many ids were drawn and rolled back behind a transaction that is still open.
	scaleGaps = 200
	// scaleBacklog is how many events nobody has sequenced yet; the status counts no more than 10,000 of them.
	scaleBacklog = 20_000
	// scaleStatuses is how often the status is read.
	scaleStatuses = 200
)

// scaleCases: what is asked of a long ledger, and how it is rebuilt.
func scaleCases() []Case {
	return []Case{{Name: "scale", Run: func(ctx context.Context, b *Bench) ([]Row, error) { return b.scale(ctx) }}}
}

func (b *Bench) scale(ctx context.Context) ([]Row, error) {
	name, err := b.manyEvents(ctx)
	if err != nil {
		return nil, err
	}
	// First, because nothing may come behind the last event that the plain statement sees.
	rows, err := b.rebuild(ctx, name, 1, b.Events, false)
	if err != nil {
		return nil, err
	}
	for _, part := range []func(context.Context, string) ([]Row, error){b.scaleRelay, b.scaleStatus} {
		more, err := part(ctx, name)
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

// scaleRelay times the statements of a relay at the beginning of the ledger, and at its end, where more comes. Some
// events in each page are of keys that are held up.
func (b *Bench) scaleRelay(ctx context.Context, name string) (rows []Row, err error) {
	step := min(100, b.Events/scaleParked)
	pages := int64(scalePages * outbox.DefaultRelayPageSize)
	for _, place := range []struct {
		name  string
		start int64 // the relay begins after that position
		held  int64 // and the parked events lie after that one
		live  int64 // events that come while it runs
	}{
		{"beginning", 0, 0, 0},
		{"end", b.Events - pages, b.Events - scaleParked*step, scaleTrickle},
	} {
		var timed statements
		pool, err := b.pool(ctx, name, 4, timed.traced)
		if err != nil {
			return nil, err
		}
		defer pool.Close()
		if err := b.parkEvents(ctx, name, place.name, place.held, step); err != nil {
			return nil, err
		}
		events := pages - pages/step + place.live
		err = relayEvents(ctx, pool, place.name, outbox.FromAfter(ledger.Position(place.start)), events, func(ctx context.Context) error {
			return b.trickle(ctx, name, place.name, place.live)
		})
		if err != nil {
			return nil, err
		}
		row, err := timed.row(fmt.Sprintf("statements of a relay, %s of %d events, %d parked, slowest p99", place.name, b.Events, scaleParked))
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// parkEvents parks events after a position, one in so many.
func (b *Bench) parkEvents(ctx context.Context, name, relay string, after, step int64) error {
	pool, err := b.pool(ctx, name, 1)
	if err != nil {
		return err
	}
	defer pool.Close()
	tag, err := pool.Exec(ctx, parkEventsSQL, relay, after, scaleParked, step)
	if err == nil && tag.RowsAffected() != scaleParked {
		err = fmt.Errorf("%d events are parked, not %d", tag.RowsAffected(), scaleParked)
	}
	return err
}

// trickle enqueues one event after the other, once the relay has come to the end of what there is.
func (b *Bench) trickle(ctx context.Context, name, relay string, events int64) error {
	if events == 0 {
		return nil
	}
	pool, err := b.pool(ctx, name, 1)
	if err != nil {
		return err
	}
	defer pool.Close()
	d, err := newDaybook(pool)
	if err != nil {
		return err
	}
	if err := awaitCursor(ctx, pool, outbox.RelayCursorName(relay), ledger.Position(b.Events)); err != nil {
		return err
	}
	for n := range events {
		if err := d.enqueue(ctx, newOrder(n), commands.OutcomeAccepted); err != nil {
			return err
		}
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// scaleStatus times the statements of the status: while gaps are open behind a transaction, and while a backlog waits to
// be sequenced.
func (b *Bench) scaleStatus(ctx context.Context, name string) (rows []Row, err error) {
	pool, err := b.pool(ctx, name, 2)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	long, err := pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, long.Rollback(context.WithoutCancel(ctx))) }()
	if _, err := long.Exec(ctx, "select pg_current_xact_id()"); err != nil {
		return nil, err
	}
	if err := makeGaps(ctx, pool); err != nil {
		return nil, err
	}
	gaps := fmt.Sprintf("%d events, gaps of %d rolled-back ids", b.Events, scaleGaps)
	row, err := b.timeStatus(ctx, name, "status, "+gaps, func(s ledger.Status) bool { return s.Gaps.Count > 0 && s.Gaps.Holder != nil })
	if err != nil {
		return nil, err
	}
	rows = append(rows, row)
	if err := appendEvents(ctx, pool, b.Events+1, b.Events+scaleBacklog); err != nil {
		return nil, err
	}
	backlog := fmt.Sprintf("%s, %d not sequenced", gaps, scaleBacklog)
	row, err = b.timeStatus(ctx, name, "status, "+backlog, func(s ledger.Status) bool { return s.Unsequenced.Events >= scaleBacklog })
	if err != nil {
		return nil, err
	}
	return append(rows, row), nil
}

// makeGaps draws ids that are rolled back, each before another that commits and is sequenced.
func makeGaps(ctx context.Context, pool *pgxpool.Pool) error {
	d, err := newDaybook(pool)
	if err != nil {
		return err
	}
	for n := range int64(scaleGaps) {
		err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, drawEventIDSQL); err != nil {
				return err
			}
			return errRolledBack
		})
		if !errors.Is(err, errRolledBack) {
			return err
		}
		if err := d.enqueue(ctx, newOrder(scaleTrickle+n), commands.OutcomeAccepted); err != nil {
			return err
		}
		if _, err := ledger.Sequence(ctx, pool); err != nil {
			return err
		}
	}
	return nil
}

var errRolledBack = errors.New("rolled back")

func (b *Bench) timeStatus(ctx context.Context, name, work string, expected func(ledger.Status) bool) (Row, error) {
	var timed statements
	pool, err := b.pool(ctx, name, 1, timed.traced)
	if err != nil {
		return Row{}, err
	}
	defer pool.Close()
	for range scaleStatuses {
		status, err := ledger.ReadStatus(ctx, pool)
		if err != nil {
			return Row{}, err
		}
		if !expected(status) {
			return Row{}, fmt.Errorf("the status is not what was made: %+v", status)
		}
	}
	return timed.row("statements of the " + work + ", slowest p99")
}
