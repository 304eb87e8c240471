package main

import (
	"sync"
	"time"
)

// tally counts what is completed, and takes the rate of a window that begins and ends with a completion. Work is
// completed in bursts, of a hundred or of thousands, and a window between two arbitrary moments would hold one burst
// too many or too few.
type tally struct {
	// done is closed at the end of the window, or once the stock is empty.
	done chan struct{}

	mu             sync.Mutex
	stock          int64
	opens          time.Time // the first completion after that begins the window
	length         time.Duration
	begun, ended   time.Time
	inside         int64
	completed, bad int64
}

func newTally(stock int64, lead, length time.Duration) *tally {
	return &tally{done: make(chan struct{}), stock: stock, opens: time.Now().Add(lead), length: length}
}

// add tells what was completed just now, and what went wrong.
func (t *tally) add(completed, bad int64) { t.addAt(time.Now(), completed, bad) }

func (t *tally) addAt(now time.Time, completed, bad int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.completed += completed
	t.bad += bad
	if !t.ended.IsZero() {
		return
	}
	switch {
	case !t.begun.IsZero():
		t.inside += completed
	case !now.Before(t.opens):
		t.begun = now
	}
	over := !t.begun.IsZero() && now.Sub(t.begun) >= t.length
	if over || t.completed+t.bad >= t.stock {
		t.ended = now
		close(t.done)
	}
}

// result is what was completed in all and what went wrong, the rate inside the window, and whether the stock was empty
// before the window was over.
func (t *tally) result() (completed, bad int64, rate float64, dry bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	window := t.ended.Sub(t.begun)
	if t.begun.IsZero() || window <= 0 {
		return t.completed, t.bad, 0, true
	}
	return t.completed, t.bad, float64(t.inside) / window.Seconds(), window < t.length
}
