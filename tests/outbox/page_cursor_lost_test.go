package outbox_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// breaker breaks the connection on which the next commit is sent, once it is armed: before the server gets that, or after it has
// answered.
type breaker struct {
	armed  atomic.Bool
	before bool
}

func (b *breaker) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &breaking{Conn: conn, breaker: b}, nil
}

type breaking struct {
	net.Conn
	breaker *breaker
	deaf    atomic.Bool
}

func (c *breaking) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("commit\x00")) && c.breaker.armed.CompareAndSwap(true, false) {
		if c.breaker.before {
			_ = c.Close()
			return 0, io.ErrClosedPipe
		}
		c.deaf.Store(true)
	}
	return c.Conn.Write(p)
}

func (c *breaking) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.deaf.Load() {
		_ = c.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// The connection on which the cursor is written breaks as that commits, while a page is being handled and at its end. Whether it has
// committed or not, the cursor goes on from there, and nothing that was acked comes again.
func TestCommitOfWhichNothingIsHeard(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]bool{"it is not made": true, "it is made": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := &breaker{before: before}
			db := pgtest.New(t, pgtest.PoolConfig(func(config *pgxpool.Config) { config.ConnConfig.DialFunc = b.dial }))
			enqueue(t, db, 4)
			messages := subscribe(t, newSubscriber(t, outbox.Config{Pool: db.Pool}), outbox.TopicAll)
			reaches := func(at ledger.Position) {
				t.Helper()
				waitCursor(t, db, "test/"+outbox.TopicAll, at)
			}
			broken := func() {
				t.Helper()
				pgtest.WaitFor(t, patience, func() bool { return !b.armed.Load() }, "a connection has broken")
			}
			msg := receive(t, messages)
			b.armed.Store(true)
			msg.Ack()
			msg = receive(t, messages)
			broken()
			reaches(1)
			msg.Ack()
			msg = receive(t, messages)
			reaches(2)
			msg.Ack()
			// The last of the page: its ack is written by watermill-sql.
			msg = receive(t, messages)
			reaches(3)
			b.armed.Store(true)
			msg.Ack()
			broken()
			enqueue(t, db, 1)
			if diff := cmp.Diff([]ledger.Position{5}, positions(t, messages, 1)); diff != "" {
				t.Errorf("then positions (-want +got):\n%s", diff)
			}
			reaches(5)
		})
	}
}
