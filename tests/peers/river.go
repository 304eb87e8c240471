package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

// riverPeer is an insert-only client: no queues, no workers, never started, as River's documentation has it for a
// process that only inserts.
type riverPeer struct{ client *river.Client[pgx.Tx] }

func newRiver(pool *pgxpool.Pool) (riverPeer, error) {
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return riverPeer{}, fmt.Errorf("make a River client: %w", err)
	}
	return riverPeer{client}, nil
}

// uniqueByArgs is what River's unique index enforces: one job for each kind and arguments, in its default states.
func uniqueByArgs() *river.InsertOpts {
	return &river.InsertOpts{UniqueOpts: river.UniqueOpts{ByArgs: true}}
}

var (
	errSkipped  = errors.New("river skipped a fresh job as a duplicate")
	errInserted = errors.New("river inserted a duplicate")
)

func (r riverPeer) insert(ctx context.Context, o order, duplicate bool) error {
	result, err := r.client.Insert(ctx, o, uniqueByArgs())
	switch {
	case err != nil:
		return err
	case result.UniqueSkippedAsDuplicate && !duplicate:
		return errSkipped
	case !result.UniqueSkippedAsDuplicate && duplicate:
		return errInserted
	}
	return nil
}

func (r riverPeer) insertMany(ctx context.Context, all []order) error {
	params := make([]river.InsertManyParams, len(all))
	for i, o := range all {
		params[i] = river.InsertManyParams{Args: o, InsertOpts: uniqueByArgs()}
	}
	results, err := r.client.InsertMany(ctx, params)
	if err != nil {
		return err
	}
	for _, result := range results {
		if result.UniqueSkippedAsDuplicate {
			return errSkipped
		}
	}
	return nil
}

// migrateRiver applies River's own migrations.
func migrateRiver(ctx context.Context, pool *pgxpool.Pool) error {
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}
