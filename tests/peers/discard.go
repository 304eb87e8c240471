package main

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/outbox"
)

// discard is a broker that acknowledges everything at once, and forgets it.
type discard struct {
	count atomic.Int64
	// reached is closed when so many have come.
	enough  int64
	reached chan struct{}
}

func newDiscard(enough int64) *discard { return &discard{enough: enough, reached: make(chan struct{})} }

// Publish counts.
func (d *discard) Publish(_ string, messages ...*message.Message) error {
	for range messages {
		if d.count.Add(1) == d.enough {
			close(d.reached)
		}
	}
	return nil
}

// Close does nothing: it is a message.Publisher's.
func (*discard) Close() error { return nil }

// relayEvents relays so many events, from where the relay of that name begins. While the relay waits for what is not
// there yet, more may be enqueued by meanwhile.
func relayEvents(
	ctx context.Context, pool *pgxpool.Pool, name string, start outbox.Start, events int64, meanwhile func(ctx context.Context) error,
) error {
	broker := newDiscard(events)
	relay, err := outbox.NewRelay(outbox.RelayConfig{Pool: pool, Name: name, Publisher: broker, Start: start})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- relay.Run(ctx) }()
	if meanwhile != nil {
		if err := meanwhile(ctx); err != nil {
			cancel()
			return errors.Join(err, <-ended)
		}
	}
	select {
	case <-broker.reached:
		cancel()
		return <-ended
	case err := <-ended:
		return errors.Join(errors.New("the relay ended before it had published everything"), err)
	}
}
