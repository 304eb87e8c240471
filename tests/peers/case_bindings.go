package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/commands"
)

// bindingWriters is how many enqueue at once beside many bindings.
const bindingWriters = 8

// bindingsCases: fresh enqueues beside many bindings and beside few.
func bindingsCases() []Case {
	return []Case{{Name: "bindings", Run: func(ctx context.Context, b *Bench) ([]Row, error) {
		return b.bindings(ctx)
	}}}
}

func (b *Bench) bindings(ctx context.Context) (rows []Row, err error) {
	few, err := b.fillDatabase(ctx, fewBindings)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.drop(context.WithoutCancel(ctx), few)) }()
	many, err := b.filledDatabase(ctx)
	if err != nil {
		return nil, err
	}
	var (
		calls [2]func(context.Context) error
		pools [2]*pgxpool.Pool
	)
	for i, name := range []string{many, few} {
		if pools[i], err = b.pool(ctx, name, bindingWriters); err != nil {
			return nil, err
		}
		defer pools[i].Close()
		if calls[i], err = freshCall(pools[i], bindingsFirst); err != nil {
			return nil, err
		}
	}
	rows, err = b.race(ctx, Race{
		Work:    fmt.Sprintf("keyed enqueue, fresh, %d bindings, %s", b.Bindings, writersText(bindingWriters)),
		Writers: bindingWriters,
		Daybook: calls[0],
		Peers:   []Peer{{Contender: Contender{fmt.Sprintf("itself with %d bindings", fewBindings), calls[1]}}},
	})
	// Told as time and not as rate.
	for i := range rows {
		row := &rows[i]
		reached := ratio(*row.Peer, *row.Daybook)
		row.Goal, row.Reached = atMost(1.3, "× its time"), &reached
		row.Met = row.Goal.met(reached)
	}
	return rows, err
}

// The cases that share a database take orders of their own.
const (
	bindingsFirst = 1 << 40
	expiredFirst  = 1 << 41
)

// freshCall enqueues an order after the other, from the first.
func freshCall(pool *pgxpool.Pool, first int64) (func(context.Context) error, error) {
	d, err := newDaybook(pool)
	if err != nil {
		return nil, err
	}
	var n atomic.Int64
	n.Store(first)
	return func(ctx context.Context) error {
		return d.enqueue(ctx, newOrder(n.Add(1)), commands.OutcomeAccepted)
	}, nil
}
