package relay_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"

	"github.com/daybook-go/daybook/cmd/daybook/localpg"
	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/outbox/jetstream"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// PostgreSQL stops in the midst of a page, without a checkpoint, while requests are made; JetStream goes on. The relay goes on
// by itself when the server is back, and what it had published before it could say so is in the stream once. The status is
// an error meanwhile, and well afterwards.
func TestServerRestart(t *testing.T) {
	t.Parallel()
	cluster := pgtest.NewCluster(t, nil)
	db := cluster.New(t)
	n := startNATS(t)
	js := n.stream()
	const rounds, pageSize = 2, 40
	publisher := &holding{Publisher: newPublisher(t, n)}
	start(t, outbox.RelayConfig{Pool: db.Pool, Publisher: publisher, Poison: jetstream.Poison, PageSize: pageSize, Lanes: 4})
	stop := keepAsking(t, db, 3)
	for range rounds {
		// No acknowledgement is passed on from the midst of a page until the server is gone: so the cursor is behind the stream.
		caught, release := publisher.hold(3 * pageSize / 2)
		select {
		case <-caught:
		case <-time.After(patience):
			t.Fatal("the relay does not publish")
		}
		if err := cluster.Stop(background(t), localpg.Immediate); err != nil {
			t.Fatal(err)
		}
		release()
		if status, err := ledger.ReadStatus(t.Context(), db.Pool); err == nil {
			t.Errorf("without a server the status is %+v", status)
		}
		if err := cluster.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	requests := stop()

	var status ledger.Status
	pgtest.WaitFor(t, patience, func() bool {
		var err error
		status, err = ledger.ReadStatus(t.Context(), db.Pool)
		return err == nil && status.Head >= ledger.Position(requests) && status.Unsequenced.Events == 0 &&
			len(status.Cursors) == 1 && status.Cursors[0].Lag.Events == 0 &&
			len(status.Runners) == 1 && status.Runners[0].BeatAge < 2*ledger.BeatInterval && status.Listeners == 1
	}, "the status is well again")
	if status.Parked.Events != 0 || status.Swept != 0 {
		t.Errorf("status %+v", status)
	}
	if got := stored(t, js); got != uint64(status.Head) {
		t.Errorf("%d messages are stored for %d events", got, status.Head)
	}
	got := n.read(js, int(status.Head))
	checkComplete(t, got, status.Head)
	var positions []ledger.Position
	for _, d := range got {
		positions = append(positions, d.Position)
	}
	slices.Sort(positions)
	if diff := cmp.Diff(series(1, status.Head), positions); diff != "" {
		t.Errorf("positions in the stream (-want +got):\n%s", diff)
	}
	// Whoever has lost an answer has asked again, and that is no second event.
	t.Logf("%d requests, %d events, published %d times", requests, status.Head, publisher.count())
	if status.Head != ledger.Position(requests) {
		t.Errorf("%d events of %d requests", status.Head, requests)
	}
	if publisher.count() <= int(status.Head) {
		t.Error("nothing was published again: no restart fell between the stream and the cursor")
	}
}

// holding is a publisher that can keep back its acknowledgements.
type holding struct {
	message.Publisher

	mu     sync.Mutex
	total  int
	left   int // messages until it holds; it holds no more where that is below 0
	caught chan struct{}
	free   chan struct{}
}

// hold makes it keep back every acknowledgement from the n-th message on, until release. It closes caught when it has
// one to keep back.
func (h *holding) hold(n int) (caught <-chan struct{}, release func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.left, h.caught, h.free = n, make(chan struct{}), make(chan struct{})
	return h.caught, sync.OnceFunc(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		close(h.free)
		h.free = nil
	})
}

func (h *holding) Publish(topic string, messages ...*message.Message) error {
	if err := h.Publisher.Publish(topic, messages...); err != nil {
		return err
	}
	h.mu.Lock()
	h.total += len(messages)
	h.left--
	free := h.free
	switch {
	case h.left > 0:
		free = nil
	case h.left == 0 && free != nil:
		close(h.caught)
	}
	h.mu.Unlock()
	if free != nil {
		<-free
	}
	return nil
}

func (h *holding) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.total
}

// keepAsking makes requests until stop, so many at a time, each of them until it is decided: what is accepted, and what
// the same key refuses. stop returns how many were; each is an event.
func keepAsking(t *testing.T, db *pgtest.DB, writers int) (stop func() int) {
	t.Helper()
	queue := newQueue(t, db)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 2*patience)
	var wg sync.WaitGroup
	ended := make(chan struct{})
	decided := make([]int, writers)
	for w := range writers {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-ended:
					return
				default:
				}
				request := commands.EnqueueOptions{
					Type: "test", Payload: i, Idempotency: &commands.Idempotency{Key: ledger.NewKey(fmt.Sprintf("writer %d, order %d", w, i%7))},
				}
				for !isDecided(ctx, queue, request) {
					if ctx.Err() != nil {
						t.Errorf("request %d of writer %d was never decided", i, w)
						return
					}
					pause(ctx)
				}
				decided[w]++
			}
		})
	}
	stop = sync.OnceValue(func() (sum int) {
		close(ended)
		wg.Wait()
		cancel()
		for _, n := range decided {
			sum += n
		}
		return sum
	})
	t.Cleanup(func() { stop() })
	return stop
}

// isDecided makes a request once and says whether it was decided, be it by a refusal.
func isDecided(ctx context.Context, queue *commands.Queue, request commands.EnqueueOptions) bool {
	_, err := queue.EnqueueWithResult(ctx, request)
	var conflict *commands.EnqueueIdempotencyConflictError
	return err == nil || errors.As(err, &conflict)
}
