package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/commands"
)

const (
	// claimLimit is how many jobs one claim takes and one completion ends.
	claimLimit = 100
	// claimers is how many goroutines claim and complete: of 2, 4 and 8 the fastest on two cores.
	claimers = 4
	// workConns is the size of each side's pool. River's client wants some for itself: it listens, elects and fetches.
	workConns = 8
	// workLead is how long a side works before its round begins: River's client has to start and to find its pace.
	workLead = 300 * time.Millisecond
	// workLength is a round's length in round times: River completes some thousand jobs at once, and a short round would
	// see few of these bursts.
	workLength = 2
	// workPatience is how long a round may take beyond its time.
	workPatience = 30 * time.Second
)

// workCases: no-op jobs from a stock, claimed and completed.
func workCases() []Case {
	return []Case{{Name: "work", Run: func(ctx context.Context, b *Bench) ([]Row, error) { return b.work(ctx) }}}
}

// crew is one side.
type crew struct {
	// fill adds so many jobs to the stock.
	fill func(ctx context.Context, jobs int64) error
	// work works until stop is closed, tells the tally what was completed, and returns once nothing is at work.
	work func(ctx context.Context, stop <-chan struct{}, t *tally) error
	pool *pgxpool.Pool
	// waiting, held and done count the jobs; whatever is in none of the three went wrong.
	count string

	rate  float64 // of the warm-up
	total int64   // completed so far
	Measure
}

func (b *Bench) work(ctx context.Context) ([]Row, error) {
	return b.withPeers(ctx, workConns, func(f Field, p peers) ([]Row, error) {
		var toDaybook, toRiver atomic.Int64
		crews := []*crew{
			{
				pool: f.Daybook, work: p.daybook.work, count: daybookStockSQL,
				fill: func(ctx context.Context, jobs int64) error {
					return p.daybook.enqueueMany(ctx, orders(toDaybook.Add(jobs)-jobs, jobs))
				},
			},
			{
				pool: f.River, work: riverWork(f.River), count: riverStockSQL,
				fill: func(ctx context.Context, jobs int64) error {
					return p.river.insertFast(ctx, orders(toRiver.Add(jobs)-jobs, jobs))
				},
			},
		}
		if err := b.settle(ctx, f); err != nil {
			return nil, err
		}
		for round := range b.Rounds + 1 {
			for _, c := range crews {
				if err := b.workRound(ctx, c, round == 0); err != nil {
					return nil, err
				}
			}
		}
		for _, c := range crews {
			c.Rate, c.WAL = median(c.Rates), median(c.wals)
		}
		return []Row{newRow(
			fmt.Sprintf("no-op jobs claimed and completed, batches of %d, %d claimers", claimLimit, claimers),
			Peer{Goal: 1, Contender: Contender{Name: "River's client, 2,000 workers"}},
			crews[0].Measure, crews[1].Measure,
		)}, nil
	})
}

// warmStock is what the first round has to do; later ones have half as much again as they would need at its rate.
const warmStock = 40_000

// errDry says that a round says nothing: there was not always something to do.
var errDry = errors.New("the stock ran dry")

// workRound fills the stock, lets the crew work, and looks whether it left everything in order.
func (b *Bench) workRound(ctx context.Context, c *crew, warming bool) error {
	waiting, _, err := c.stock(ctx)
	if err != nil {
		return err
	}
	stock, length := int64(warmStock), workLength*b.RoundTime
	if !warming {
		stock = max(stock, int64(1.5*c.rate*(workLead+length).Seconds()))
	}
	for ; waiting < stock; waiting += fillBatch {
		if err := c.fill(ctx, fillBatch); err != nil {
			return err
		}
	}
	if err := vacuum(ctx, c.pool); err != nil {
		return err
	}
	before, err := b.walPosition(ctx)
	if err != nil {
		return err
	}
	t := newTally(waiting, workLead, length)
	stop, worked := make(chan struct{}), make(chan error, 1)
	go func() { worked <- c.work(ctx, stop, t) }()
	select {
	case <-t.done:
	case err = <-worked:
		worked <- nil
	case <-ctx.Done():
	case <-time.After(workLead + length + workPatience):
		err = errors.New("a round of work did not come to its end")
	}
	close(stop)
	if err := errors.Join(<-worked, err, ctx.Err()); err != nil {
		return err
	}
	after, err := b.walPosition(ctx)
	if err != nil {
		return err
	}
	left, done, err := c.stock(ctx)
	if err != nil {
		return err
	}
	completed, failed, rate, dry := t.result()
	if left+completed != waiting || c.total+completed != done {
		err = fmt.Errorf("of %d jobs %d are left and %d are done, but %d were completed",
			waiting, left, done-c.total, completed)
	}
	c.total = done
	if warming {
		c.rate = rate
		return err
	}
	if dry {
		err = errors.Join(err, errDry)
	}
	if failed > 0 {
		err = errors.Join(err, fmt.Errorf("%d jobs were not completed", failed))
	}
	if err != nil {
		c.errors += max(failed, 1)
		c.err = errors.Join(c.err, err)
	}
	c.Rates = append(c.Rates, rate)
	c.wals = append(c.wals, float64(after-before)/float64(completed))
	return nil
}

// fillBatch is how many jobs one call puts into a stock.
const fillBatch = 5000

const (
	daybookStockSQL = `
		select count(*) filter (where state = 'ready'), count(*) filter (where state = 'succeeded'), count(*)
		from daybook.job`
	riverStockSQL = `
		select count(*) filter (where state = 'available'), count(*) filter (where state = 'completed'), count(*)
		from river_job`
)

// stock counts what waits and what is done. Nothing may be in between while nobody works.
func (c *crew) stock(ctx context.Context) (waiting, done int64, err error) {
	var all int64
	if err := c.pool.QueryRow(ctx, c.count).Scan(&waiting, &done, &all); err != nil {
		return 0, 0, fmt.Errorf("count the stock: %w", err)
	}
	if waiting+done != all {
		return 0, 0, fmt.Errorf("%d jobs neither wait nor are done, although nobody works", all-waiting-done)
	}
	return waiting, done, nil
}

// work claims and completes. It decodes each payload, as River does for its workers.
func (d daybook) work(ctx context.Context, stop <-chan struct{}, t *tally) error {
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		errs []error
	)
	for i := range claimers {
		wg.Go(func() {
			options := commands.ClaimOptions{Worker: fmt.Sprintf("worker-%d", i), Limit: claimLimit}
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := d.workOnce(ctx, options, t); err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (d daybook) workOnce(ctx context.Context, options commands.ClaimOptions, t *tally) error {
	jobs, err := d.queue.ClaimJobs(ctx, options)
	if err != nil {
		return err
	}
	claims := make([]commands.Claim, len(jobs))
	for i, job := range jobs {
		var o order
		if err := json.Unmarshal(job.Payload, &o); err != nil {
			return err
		}
		claims[i] = job.Claim
	}
	held, err := d.queue.CompleteJobs(ctx, claims...)
	if err != nil {
		return err
	}
	var done, stale int64
	for _, ok := range held {
		if ok {
			done++
		} else {
			stale++
		}
	}
	t.add(done, stale)
	return nil
}
