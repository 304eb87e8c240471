package relay_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
)

// broker is a message.Publisher that keeps what it acknowledges, in the order in which it does.
type broker struct {
	t testing.TB
	// deliver, where it is set, decides about each message, before it is kept: an error refuses it.
	deliver func(topic string, msg *message.Message, a outbox.Attributes) error

	mu       sync.Mutex
	got      []delivery
	keys     map[string]int // messages under way, by key
	underWay int
	most     int // messages under way at once
}

type delivery struct {
	outbox.Attributes
	topic string
	msg   *message.Message
}

func newBroker(t testing.TB) *broker { return &broker{t: t, keys: map[string]int{}} }

func (b *broker) Publish(topic string, messages ...*message.Message) error {
	for _, msg := range messages {
		a, err := outbox.AttributesOf(msg)
		if err != nil {
			b.t.Error(err)
			return err
		}
		if err := b.take(topic, msg, a); err != nil {
			return err
		}
	}
	return nil
}

func (b *broker) take(topic string, msg *message.Message, a outbox.Attributes) error {
	key := keyOf(a)
	b.mu.Lock()
	b.underWay++
	b.most = max(b.most, b.underWay)
	b.keys[key]++
	if b.keys[key] > 1 {
		b.t.Errorf("position %d is published while another event of its key is", a.Position)
	}
	deliver := b.deliver
	b.mu.Unlock()

	var err error
	if deliver != nil {
		err = deliver(topic, msg, a)
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	b.underWay--
	b.keys[key]--
	if err == nil {
		b.got = append(b.got, delivery{a, topic, msg})
	}
	return err
}

// decide sets deliver while messages of an earlier run may be under way.
func (b *broker) decide(deliver func(topic string, msg *message.Message, a outbox.Attributes) error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deliver = deliver
}

// Close fails the test: a relay leaves its publisher open.
func (b *broker) Close() error {
	b.t.Error("the publisher was closed")
	return errors.New("closed")
}

// keyOf is what the order is kept for.
func keyOf(a outbox.Attributes) string {
	if a.KeyDigest != "" {
		return string(a.KeyDigest)
	}
	return a.JobID.String()
}

func (b *broker) deliveries() []delivery {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.got)
}

func (b *broker) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.got)
}

// positions returns what was acknowledged, in that order.
func (b *broker) positions() []ledger.Position {
	var all []ledger.Position
	for _, d := range b.deliveries() {
		all = append(all, d.Position)
	}
	return all
}

// checkComplete fails where a position from 1 to last was never acknowledged, or where the first deliveries of a key's
// events are out of order. Events may come more than once.
func (b *broker) checkComplete(t testing.TB, last ledger.Position) {
	t.Helper()
	checkComplete(t, b.deliveries(), last)
}

func checkComplete(t testing.TB, got []delivery, last ledger.Position) {
	t.Helper()
	seen := map[ledger.Position]bool{}
	latest := map[string]ledger.Position{}
	for _, d := range got {
		if seen[d.Position] {
			continue
		}
		seen[d.Position] = true
		key := keyOf(d.Attributes)
		if d.Position < latest[key] {
			t.Errorf("position %d came after %d of the same key", d.Position, latest[key])
		}
		latest[key] = d.Position
	}
	for p := ledger.Position(1); p <= last; p++ {
		if !seen[p] {
			t.Errorf("position %d was lost", p)
		}
	}
}

// running is a relay that runs until it is ended.
type running struct {
	t      testing.TB
	cancel context.CancelFunc
	done   chan error
}

// start runs a relay with short intervals.
func start(t testing.TB, config outbox.RelayConfig) *running {
	t.Helper()
	relay := newRelay(t, config)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	r := &running{t: t, cancel: cancel, done: make(chan error, 1)}
	go func() { r.done <- relay.Run(ctx) }()
	t.Cleanup(r.end)
	return r
}

// end ends it and waits; a second call does nothing.
func (r *running) end() {
	r.t.Helper()
	r.cancel()
	if err, ok := <-r.done; ok {
		close(r.done)
		if err != nil {
			r.t.Errorf("Run: %v", err)
		}
	}
}
