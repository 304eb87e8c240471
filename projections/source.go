package projections

import (
	"context"
	"sync"

	"github.com/daybook-go/daybook/ledger"
)

// page is what lies in a window of positions.
type page struct {
	after, through ledger.Position
	events         []ledger.Event
	err            error
}

// source reads the ledger one page ahead, on a connection of its own, so that PostgreSQL reads while the fold before
// runs. What it reads ahead can't be stale: the ledger never changes.
//
// Whoever waits for a page must hold no connection: with a pool of one, the page would never come.
type source struct {
	db    ledger.Querier
	kinds []ledger.Kind

	ahead  chan page
	after  ledger.Position
	limit  int
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// next returns the page of at most limit positions after one, and begins to read the one after it where that lies
// before the end.
func (s *source) next(ctx context.Context, after ledger.Position, limit int, end ledger.Position) page {
	var got page
	if s.ahead != nil && s.after == after && s.limit == limit {
		got = <-s.ahead
		s.stop()
	} else {
		s.stop()
		got.after = after
		got.events, got.through, got.err = ledger.Read(ctx, s.db, after, limit, s.kinds...)
	}
	if got.err == nil && got.through > after && got.through < end {
		s.begin(ctx, got.through, min(limit, int(end-got.through)))
	}
	return got
}

func (s *source) begin(ctx context.Context, after ledger.Position, limit int) {
	ctx, s.cancel = context.WithCancel(ctx)
	s.after, s.limit, s.ahead = after, limit, make(chan page, 1)
	ahead := s.ahead
	s.done.Go(func() {
		p := page{after: after}
		p.events, p.through, p.err = ledger.Read(ctx, s.db, after, limit, s.kinds...)
		ahead <- p
	})
}

// stop ends the reading ahead and waits for it.
func (s *source) stop() {
	if s.ahead != nil {
		s.cancel()
		s.done.Wait()
		s.ahead = nil
	}
}
