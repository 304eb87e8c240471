package projections

import (
	"context"

	"github.com/daybook-go/daybook/ledger"
)

// page is what lies in a window of positions.
type page struct {
	after, through ledger.Position
	events         []ledger.Event
	err            error
}

// pagesAhead is how many pages are read while one is folded: with two, PostgreSQL collects the one while the other is
// taken in here.
const pagesAhead = 2

// source reads the ledger some pages ahead, on connections of its own, so that PostgreSQL reads while the fold before
// runs. What it reads ahead can't be stale: the ledger never changes.
//
// Whoever waits for a page must hold no connection: with a pool of one, the page would never come.
type source struct {
	db    ledger.Querier
	kinds []ledger.Kind
	ahead []reading
}

// reading is one page under way.
type reading struct {
	after  ledger.Position
	limit  int
	cancel context.CancelFunc
	done   chan page
}

// next returns the page of at most limit positions after one, and begins to read those that follow up to the end, which
// exists, or it is an error.
func (s *source) next(ctx context.Context, after ledger.Position, limit int, end ledger.Position) page {
	if len(s.ahead) > 0 && (s.ahead[0].after != after || s.ahead[0].limit != limit) {
		s.stop()
	}
	if len(s.ahead) == 0 {
		s.begin(ctx, after, limit)
	}
	for last := s.ahead[len(s.ahead)-1]; len(s.ahead) <= pagesAhead; last = s.ahead[len(s.ahead)-1] {
		from := last.after + ledger.Position(last.limit)
		if from >= end {
			break
		}
		s.begin(ctx, from, min(limit, int(end-from)))
	}
	first := s.ahead[0]
	s.ahead = s.ahead[1:]
	defer first.cancel()
	return <-first.done
}

func (s *source) begin(ctx context.Context, after ledger.Position, limit int) {
	ctx, cancel := context.WithCancel(ctx)
	r := reading{after: after, limit: limit, cancel: cancel, done: make(chan page, 1)}
	s.ahead = append(s.ahead, r)
	go func() {
		p := page{after: after}
		p.events, p.through, p.err = readWindow(ctx, s.db, after, limit, s.kinds)
		r.done <- p
	}()
}

// stop ends the reading ahead and waits for it.
func (s *source) stop() {
	for _, r := range s.ahead {
		r.cancel()
		<-r.done
	}
	s.ahead = nil
}
