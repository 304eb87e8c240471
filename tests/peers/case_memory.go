package main

import (
	"context"
	_ "embed" // the statement
	"errors"
	"fmt"

	"github.com/daybook-go/daybook/ledger"
)

//go:embed sql/start_over.sql
var startOverSQL string

const (
	// fewEvents is the short ledger.
	fewEvents = 10_000
	// memoryEvents is how many of the long ledger's events a relay or a projection has before it: its last ones. A rebuild
	// goes through all of them.
	memoryEvents = 1_000_000
)

// memoryCases: what a process needs that relays, projects or rebuilds, with few events and with many.
func memoryCases() []Case {
	return []Case{{Name: "memory", Run: func(ctx context.Context, b *Bench) ([]Row, error) { return b.memory(ctx) }}}
}

func (b *Bench) memory(ctx context.Context) (rows []Row, err error) {
	few, err := b.ledgerDatabase(ctx, fewEvents)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.drop(context.WithoutCancel(ctx), few)) }()
	many, err := b.manyEvents(ctx)
	if err != nil {
		return nil, err
	}
	last := min(memoryEvents, b.Events)
	for _, work := range []struct {
		name   string
		events int64
	}{
		{"relay", last},
		{"projector", last},
		{"catch up", last},
		{"rebuild of view_decision_rate", b.Events},
		{"rebuild of view_key", b.Events},
	} {
		for _, place := range []struct {
			database string
			length   int64
			events   int64
		}{{few, fewEvents, fewEvents}, {many, b.Events, work.events}} {
			if err := b.startOver(ctx, place.database); err != nil {
				return nil, err
			}
			done, err := b.inProcess(ctx, task{
				Name: work.name, Database: place.database, After: ledger.Position(place.length - place.events), Events: place.events,
			})
			if err != nil {
				return nil, err
			}
			reached := float64(done.PeakBytes) / (1 << 20)
			row := Row{
				Work: fmt.Sprintf("memory of a process, %s, ledger of %d events", work.name, place.length),
				Goal: atMost(64, " MiB"), Reached: &reached,
				Note: fmt.Sprintf("%d events in %.1f s; %s", place.events, done.Seconds, peakOf),
			}
			row.Met = row.Goal.met(reached)
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// startOver makes everybody begin anew.
func (b *Bench) startOver(ctx context.Context, database string) error {
	pool, err := b.pool(ctx, database, 1)
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, startOverSQL); err != nil {
		return fmt.Errorf("start over: %w", err)
	}
	return nil
}
