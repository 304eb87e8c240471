package main

import (
	"context"
	_ "embed" // the statement
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
)

//go:embed sql/fill_events.sql
var fillEventsSQL string

const (
	// leastEvents is the least that --events takes.
	leastEvents = 100_000
	// eventsStep is how many events one statement appends.
	eventsStep = 200_000
	// checkpointStep is how many events come between two checkpoints: without them the WAL of ten million would take as
	// much room as the ledger.
	checkpointStep = 2_000_000
	// eventsFrom is when the first event was recorded. A fixed day, so that two runs have the same minutes.
	eventsFrom = "2026-01-05T00:00:00Z"
)

// appendEvents appends events from one number to another, which nobody has a position for yet.
func appendEvents(ctx context.Context, pool *pgxpool.Pool, first, last int64) error {
	from, err := time.Parse(time.RFC3339, eventsFrom)
	if err != nil {
		return err
	}
	for ; first <= last; first += eventsStep {
		if _, err := pool.Exec(ctx, fillEventsSQL, first, min(first+eventsStep-1, last), from); err != nil {
			return fmt.Errorf("append events: %w", err)
		}
	}
	return nil
}

// fillLedger appends events and has them sequenced, as whoever reads would.
func (b *Bench) fillLedger(ctx context.Context, pool *pgxpool.Pool, first, last int64) error {
	for ; first <= last; first += checkpointStep {
		if err := appendEvents(ctx, pool, first, min(first+checkpointStep-1, last)); err != nil {
			return err
		}
		if _, err := ledger.Sequence(ctx, pool); err != nil {
			return err
		}
		if last-first < checkpointStep {
			return nil
		}
		if _, err := b.admin.Exec(ctx, "checkpoint"); err != nil {
			return fmt.Errorf("checkpoint: %w", err)
		}
	}
	return nil
}

// ledgerDatabase makes a database with so many events, all of them sequenced.
func (b *Bench) ledgerDatabase(ctx context.Context, events int64) (name string, err error) {
	b.clones++
	name = fmt.Sprintf("%s_ledger_%d", b.daybookTemplate(), b.clones)
	if err := b.create(ctx, name, b.daybookTemplate()); err != nil {
		return "", err
	}
	pool, err := b.pool(ctx, name, 1)
	if err != nil {
		return "", err
	}
	defer pool.Close()
	if err := b.fillLedger(ctx, pool, 1, events); err != nil {
		return "", err
	}
	return name, b.settlePools(ctx, pool)
}

// manyEvents is the database with [Options.Events] events. It is made once, because that takes minutes: the cases that
// need it share it.
func (b *Bench) manyEvents(ctx context.Context) (string, error) {
	if b.ledger != "" {
		return b.ledger, nil
	}
	if err := b.checkRoom(b.Events); err != nil {
		return "", err
	}
	if err := b.checkBodies(ctx); err != nil {
		return "", err
	}
	name, err := b.ledgerDatabase(ctx, b.Events)
	b.ledger = name
	return name, err
}

// bytesPerEvent is what an event takes on disk at the most: 1 kB with its indexes and its position, twice a row of
// view_key, once rebuilt and once by plain SQL, with what that sorts, and the WAL of the largest of these.
const bytesPerEvent = 4000

// checkRoom says so before where a disk would be full in the middle.
func (b *Bench) checkRoom(events int64) error {
	if b.dataDir == "" {
		return nil // a server of somebody else's
	}
	free, ok := diskFree(b.dataDir)
	if needed := uint64(events) * bytesPerEvent; ok && free < needed {
		return fmt.Errorf("%d events may take %d GB, and %d are free: ask for fewer --events", events, needed>>30, free>>30)
	}
	return nil
}

// checkBodies compares the members of filled bodies with those that enqueuing writes, so that what is measured on the one
// is true of the other.
func (b *Bench) checkBodies(ctx context.Context) error {
	return b.onField(ctx, 1, func(f Field) error {
		d, err := newDaybook(f.Daybook)
		if err != nil {
			return err
		}
		o := newOrder(1)
		if err := d.enqueue(ctx, o, commands.OutcomeAccepted); err != nil {
			return err
		}
		if err := d.conflict(ctx, o); err != nil {
			return err
		}
		if err := appendEvents(ctx, f.Daybook, 19, 20); err != nil {
			return err
		}
		if _, err := ledger.Sequence(ctx, f.Daybook); err != nil {
			return err
		}
		members := map[ledger.Kind][]string{}
		for event, err := range ledger.All(ctx, f.Daybook, 0) {
			if err != nil {
				return err
			}
			var body map[string]json.RawMessage
			if err := json.Unmarshal(event.Body, &body); err != nil {
				return err
			}
			members[event.Kind] = append(members[event.Kind], strings.Join(slices.Sorted(maps.Keys(body)), " "))
		}
		for kind, of := range members {
			if len(of) != 2 || of[0] != of[1] {
				return fmt.Errorf("filled events are not like enqueued ones, %s: %q", kind, of)
			}
		}
		if len(members) != 2 {
			return errors.New("filled events are of other kinds than enqueued ones")
		}
		return nil
	})
}
