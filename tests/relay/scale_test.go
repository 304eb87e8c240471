package relay_test

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// A broker that acknowledges nothing until as many messages are under way as there are lanes gets that many at once, with one
// lane and with all; never more, and never two of one key, which the broker of these tests looks after.
func TestLanesPublishAtOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const events = 600
	appendEvents(t, db, events, 200)
	for _, lanes := range []int{1, outbox.DefaultLanes} {
		b := newBroker(t)
		full := make(chan struct{}) // closed when every lane has a message
		var arrived atomic.Int64
		b.deliver = func(string, *message.Message, outbox.Attributes) error {
			if arrived.Add(1) == int64(lanes) {
				close(full)
			}
			select {
			case <-full:
			case <-time.After(patience):
				t.Errorf("with %d lanes there are never as many messages under way", lanes)
			}
			return nil
		}
		name := fmt.Sprint("lanes-", lanes)
		r := start(t, outbox.RelayConfig{Pool: db.Pool, Publisher: b, Name: name, Lanes: lanes})
		waitCursor(t, db, name, events)
		r.end()
		b.checkComplete(t, events)
		if b.most != lanes {
			t.Errorf("%d messages were under way at once with %d lanes", b.most, lanes)
		}
		if b.count() != events {
			t.Errorf("%d messages for %d events", b.count(), events)
		}
	}
}

// However long the ledger is, a relay never has more of it in its hands than a page.
func TestMemoryIsBounded(t *testing.T) {
	db := pgtest.New(t)
	const events, pageSize, body = 20_000, 200, 2000
	db.Exec(t, `
		insert into daybook.event (recorded_at, job_id, kind, body)
		select daybook.clock(), gen_random_uuid(), 'enqueue.accepted', json_build_object('v', 1, 'n', repeat('x', $2::int))
		from generate_series(1, $1::int) as n`, events, body)
	b := &measuring{pageSize: pageSize, every: events / 10}
	start(t, outbox.RelayConfig{Pool: db.Pool, Publisher: b, PageSize: pageSize})
	waitCursor(t, db, "test", events)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ahead > pageSize {
		t.Errorf("a message %d positions beyond what was acknowledged was published; a page has %d", b.ahead, pageSize)
	}
	first, last := b.heap[1], b.heap[len(b.heap)-1]
	t.Logf("live heap after a tenth of the ledger %d KiB, at its end %d KiB; the bodies have %d KiB", first>>10, last>>10, events*body>>10)
	// A tenth of what the ledger holds, were it kept, would be more.
	if last > first+events*body/10 {
		t.Errorf("the live heap grows from %d to %d bytes", first, last)
	}
}

// measuring is a publisher that keeps nothing but measures.
type measuring struct {
	pageSize, every int

	mu    sync.Mutex
	count int
	done  map[ledger.Position]bool
	low   ledger.Position // everything up to it is acknowledged
	ahead ledger.Position
	heap  []uint64
}

func (m *measuring) Publish(_ string, messages ...*message.Message) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, msg := range messages {
		a, err := outbox.AttributesOf(msg)
		if err != nil {
			return err
		}
		m.ahead = max(m.ahead, a.Position-m.low)
		if m.done == nil {
			m.done = map[ledger.Position]bool{}
		}
		m.done[a.Position] = true
		for m.done[m.low+1] {
			delete(m.done, m.low+1)
			m.low++
		}
		if m.count++; m.count%m.every == 0 {
			runtime.GC()
			var stats runtime.MemStats
			runtime.ReadMemStats(&stats)
			m.heap = append(m.heap, stats.HeapAlloc)
		}
	}
	return nil
}

func (*measuring) Close() error { return nil }
