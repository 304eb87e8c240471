package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

// noop does nothing with an order.
type noop struct{ river.WorkerDefaults[order] }

func (noop) Work(context.Context, *river.Job[order]) error { return nil }

// riverWork works with River's own client, under the settings that River's own benchmark (river bench) has found to be
// its fastest. Like that one it counts what River says it has completed, and not what its workers have returned from.
func riverWork(pool *pgxpool.Pool) func(ctx context.Context, stop <-chan struct{}, t *tally) error {
	return func(ctx context.Context, stop <-chan struct{}, t *tally) error {
		workers := river.NewWorkers()
		if err := river.AddWorkerSafely(workers, noop{}); err != nil {
			return fmt.Errorf("add a River worker: %w", err)
		}
		client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
			FetchCooldown:     2 * time.Millisecond,
			FetchPollInterval: 20 * time.Millisecond,
			Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 2000}},
			Workers:           workers,
			Logger:            slog.New(slog.DiscardHandler),
		})
		if err != nil {
			return fmt.Errorf("make a River client: %w", err)
		}
		events, cancel := client.SubscribeConfig(&river.SubscribeConfig{
			// An event that finds the channel full is dropped, and a round would not add up.
			ChanSize: 100_000,
			Kinds: []river.EventKind{
				river.EventKindJobCompleted, river.EventKindJobFailed, river.EventKindJobCancelled,
			},
		})
		counted := make(chan struct{})
		go func() {
			defer close(counted)
			for event := range events {
				if event.Kind == river.EventKindJobCompleted {
					t.add(1, 0)
				} else {
					t.add(0, 1)
				}
			}
		}()
		err = client.Start(ctx)
		if err == nil {
			<-stop
			// What was fetched is worked and completed before it returns.
			err = client.Stop(ctx)
		}
		cancel()
		<-counted
		if err != nil {
			return errors.Join(errors.New("work with River's client"), err)
		}
		return nil
	}
}

// insertFast is River's fastest way to put jobs into a stock, without unique args as in its own benchmark.
func (r riverPeer) insertFast(ctx context.Context, all []order) error {
	params := make([]river.InsertManyParams, len(all))
	for i, o := range all {
		params[i] = river.InsertManyParams{Args: o}
	}
	_, err := r.client.InsertManyFast(ctx, params)
	return err
}
