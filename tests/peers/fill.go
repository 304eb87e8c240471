package main

import (
	"context"
	_ "embed" // the statement
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
)

//go:embed sql/fill_bindings.sql
var fillBindingsSQL string

const (
	// fewBindings is what many are compared with, and the least that --bindings takes.
	fewBindings = 10_000
	// fillStep is how many one statement makes.
	fillStep = 200_000
)

// fillDatabase makes a database with so many expired bindings and their jobs. It has no events about them: the ledger
// is only ever appended to, and its size costs an enqueue nothing.
//
// The last 3 % come after the checkpoint. The first change to a page after a checkpoint puts the whole page into the
// WAL, and keys are random, so that with 100,000 pages of index nearly each of the first enqueues would write one. That
// is over soon, and a server is seldom there; a benchmark of seconds would see nothing else. Three in a hundred are
// enough to have been to nearly each page.
func (b *Bench) fillDatabase(ctx context.Context, count int64) (name string, err error) {
	b.clones++
	name = fmt.Sprintf("%s_filled_%d", b.daybookTemplate(), b.clones)
	if err := b.create(ctx, name, b.daybookTemplate()); err != nil {
		return "", err
	}
	pool, err := b.pool(ctx, name, 1)
	if err != nil {
		return "", err
	}
	defer pool.Close()
	most := count - count*3/100
	if err := b.fill(ctx, pool, 1, most, count); err != nil {
		return "", err
	}
	if err := b.settlePools(ctx, pool); err != nil {
		return "", err
	}
	if err := b.fill(ctx, pool, most+1, count, count); err != nil {
		return "", err
	}
	return name, nil
}

func (b *Bench) fill(ctx context.Context, pool *pgxpool.Pool, first, last, count int64) error {
	payload, err := json.Marshal(newOrder(0))
	if err != nil {
		return err
	}
	for ; first <= last; first += fillStep {
		_, err := pool.Exec(ctx, fillBindingsSQL, first, min(first+fillStep-1, last), count, payload)
		if err != nil {
			return fmt.Errorf("make expired bindings: %w", err)
		}
	}
	return nil
}

// filledDatabase is the one with [Options.Bindings] expired bindings. It is made once, because that takes minutes: the
// cases that need it share it.
func (b *Bench) filledDatabase(ctx context.Context) (string, error) {
	if b.filled != "" {
		return b.filled, nil
	}
	name, err := b.fillDatabase(ctx, b.Bindings)
	b.filled = name
	return name, err
}
