package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/migrations"
)

// order is the payload, the same for every contender. River's unique key is computed from it, Daybook's key is its ID.
type order struct {
	OrderID  string `json:"order_id"`
	Customer string `json:"customer"`
	Currency string `json:"currency"`
	Cents    int    `json:"cents"`
	Lines    []line `json:"lines"`
}

type line struct {
	Article  string `json:"article"`
	Quantity int    `json:"quantity"`
}

// jobType is River's kind too.
const jobType = "order.placed"

// Kind makes an order the arguments of a River job.
func (order) Kind() string { return jobType }

// newOrder returns the nth order of a contender. All contenders do the same orders.
func newOrder(n int64) order {
	return order{
		OrderID:  "order-" + strconv.FormatInt(n, 10) + "-of-the-benchmark",
		Customer: "customer-" + strconv.FormatInt(n%9973, 10),
		Currency: "EUR",
		Cents:    1000 + int(n%5000),
		Lines:    []line{{"article-4711", 1}, {"article-0815", 2}, {"article-1001", 3}},
	}
}

func (o order) key() ledger.Key { return ledger.NewKey(o.OrderID) }

func (o order) request() commands.EnqueueOptions {
	return commands.EnqueueOptions{Type: jobType, Payload: o, Idempotency: &commands.Idempotency{Key: o.key()}}
}

func (o order) hash() []byte {
	hash, _ := ledger.Keys{}.Hash(commands.DefaultScope, o.key())
	return hash[:]
}

func orders(first, count int64) []order {
	all := make([]order, count)
	for i := range all {
		all[i] = newOrder(first + int64(i))
	}
	return all
}

// daybook is a queue and what is asked of it.
type daybook struct{ queue *commands.Queue }

func newDaybook(pool *pgxpool.Pool) (daybook, error) {
	queue, err := commands.NewQueue(commands.Config{Pool: pool})
	return daybook{queue}, err
}

func (d daybook) enqueue(ctx context.Context, o order, want commands.EnqueueOutcome) error {
	return d.ask(ctx, o.request(), want)
}

func (d daybook) ask(ctx context.Context, request commands.EnqueueOptions, want commands.EnqueueOutcome) error {
	result, err := d.queue.EnqueueWithResult(ctx, request)
	if err == nil && result.Outcome != want {
		err = fmt.Errorf("daybook decided %s, not %s", result.Outcome, want)
	}
	return err
}

func (d daybook) enqueueMany(ctx context.Context, all []order) error {
	requests := make([]commands.EnqueueOptions, len(all))
	for i, o := range all {
		requests[i] = o.request()
	}
	return d.askMany(ctx, requests)
}

// askMany asks for new work, all of it.
func (d daybook) askMany(ctx context.Context, requests []commands.EnqueueOptions) error {
	results, err := d.queue.EnqueueMany(ctx, requests)
	if err != nil {
		return err
	}
	for _, result := range results {
		if result.Outcome != commands.OutcomeAccepted {
			return fmt.Errorf("daybook decided %s, not accepted", result.Outcome)
		}
	}
	return nil
}

// conflict asks for other work under the order's key.
func (d daybook) conflict(ctx context.Context, o order) error {
	o.Cents++
	result, err := d.queue.Decide(ctx, o.request())
	if err == nil && result.Outcome != commands.OutcomeConflictRejected {
		err = fmt.Errorf("daybook decided %s, not conflict_rejected", result.Outcome)
	}
	return err
}

// migrateDaybook makes Daybook's schema, and the tables of the hand-written SQL beside it.
func migrateDaybook(ctx context.Context, pool *pgxpool.Pool) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if _, err := migrations.Up(ctx, conn.Conn()); err != nil {
		return err
	}
	return makeHandTables(ctx, conn.Conn())
}
