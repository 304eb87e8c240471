package outbox

import (
	"context"
	"time"

	"github.com/daybook-go/daybook/ledger"
)

// firstWait is how soon a reader looks again after it has found something.
const firstWait = time.Millisecond

// rareWait is how many probes long the first wait is instead, while a probe sequences: it is faster than any poll.
const rareWait = 8

// waiter is one reader's waiting between two looks: for a notification, for the poll timer, or for the end.
//
// The time between polls begins short and doubles up to the poll interval. So while events keep coming, each is
// found within a millisecond or two of its commit, by whichever reader is first; and an idle ledger costs little.
type waiter struct {
	listener *listener // nil: polling only
	wake     <-chan struct{}
	called   <-chan struct{} // ends a wait as well; nil: nobody calls
	leave    func()
	longest  time.Duration
	next     time.Duration
	// Why the last wait has ended: because positions are given, or because it was time to poll.
	given, poll bool
}

func newWaiter(l *listener, longest time.Duration) *waiter {
	w := &waiter{listener: l, longest: longest, next: firstWait, leave: func() {}, poll: true}
	if l != nil {
		w.wake, w.leave = l.register()
	}
	return w
}

// found says that the last look found something.
func (w *waiter) found() {
	w.next = firstWait
	if w.listener.sequences() {
		w.next = min(max(firstWait, rareWait*w.listener.probe), w.longest)
	}
}

// sequence says whether the reader must sequence before it looks; if not, it has been done, or the probe does it.
func (w *waiter) sequence() bool {
	spared := w.given || !w.poll && w.listener.sequences()
	w.given, w.poll = false, false
	return !spared
}

// wait returns when there may be events beyond head, when it is time to poll, or when it is called.
func (w *waiter) wait(ctx context.Context, head ledger.Position) {
	timer := time.NewTimer(w.next)
	defer timer.Stop()
	w.next = min(2*w.next, w.longest)
	w.given, w.poll = false, false
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			w.poll = true
			return
		case <-w.called:
			return
		case <-w.wake:
			// A reader that sequences hears of it itself, having read those events already.
			if last := w.listener.last.Load(); last == 0 || ledger.Position(last) > head {
				w.given, w.poll = last != 0, last == 0
				return
			}
		}
	}
}

// pause waits for a fixed time, or for the end.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
