package outbox

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/ledger"
)

// ackedInterval is how long the cursor may stay behind the messages that were acked, while their page is being handled.
const ackedInterval = 20 * time.Millisecond

// pageCursor moves a group's cursor while a page is being handled, so that a process that is killed does not get again
// what it has acked. watermill-sql acknowledges once, at the end of the page.
//
// It does so in transactions of its own: the page's transaction would have an xid from the first write on, for as long as
// the slowest handler takes. Nobody waits for these writes to be possible: they are left for later where the pool has
// no connection to spare, or somebody has locked the cursor.
//
// Each write is a compare-and-set from where the one before has put the cursor, and so is that of watermill-sql at the
// end. Where somebody else moves the cursor meanwhile, it stays there.
type pageCursor struct {
	pool   *pgxpool.Pool
	name   string
	logger *slog.Logger
	retry  time.Duration   // after a write that failed
	ctx    context.Context //nolint:containedctx // ends a little after the subscription

	mu      sync.Mutex
	open    bool
	server  server
	at      ledger.Cursor   // where it is, unless somebody else has moved it
	acked   ledger.Position // where it may be
	written time.Time
	timer   *time.Timer // set while a write is due to come
}

// server tells one life of a database from any other. A pool that has lost its server may have found another in its
// place, such as one that was restored from a backup, where the same positions may be those of other events. The cursor
// there is moved by whoever has checked its epoch.
type server struct {
	startedAt   time.Time
	databaseOID int64
}

// begin says where the cursor is as a page begins, and on which server.
func (c *pageCursor) begin(at ledger.Cursor, on server) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open, c.at, c.server, c.acked, c.written = true, at, on, at.Position, time.Now()
}

// reached says that everything up to a position was acked, before the next message is handed over. It writes that at
// once where the last write is long ago, so that no message waits in vain for its successor's handler; otherwise it sees
// to it that it is written soon, whatever that handler does.
func (c *pageCursor) reached(acked ledger.Position) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.open {
		return
	}
	c.acked = acked
	if c.timer != nil {
		return
	}
	if wait := ackedInterval - time.Since(c.written); wait > 0 {
		c.timer = time.AfterFunc(wait, c.due)
		return
	}
	c.move()
}

// due is the timer's.
func (c *pageCursor) due() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer = nil
	if c.open {
		c.move()
	}
}

// end says that the page has ended, with everything acked up to a position, and that watermill-sql writes that. It returns
// where the cursor is.
func (c *pageCursor) end(acked ledger.Position) ledger.Position {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stop()
	c.acked = acked
	return c.at.Position
}

// settle is called after each turn, with the page's transaction closed. What was acked was acked, whatever became of that:
// where the page has failed, and where last, the position of the message that was handed over last, was acked in
// the moment in which watermill-sql was closed and looked no more. last is 0 where it was not acked.
func (c *pageCursor) settle(failed bool, last ledger.Position) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stop()
	if !failed {
		c.at.Position = c.acked
	}
	c.acked = max(c.acked, last)
	c.move()
	c.acked = c.at.Position
}

func (c *pageCursor) stop() {
	c.open = false
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
}

// move writes the cursor, with the mutex held. While the page goes on, what could not be written is tried again.
func (c *pageCursor) move() {
	if c.acked <= c.at.Position {
		return
	}
	again := ackedInterval
	if conn := acquireSpare(c.ctx, c.pool); conn != nil {
		defer conn.Release()
		ctx, cancel := context.WithTimeout(c.ctx, closeGrace)
		defer cancel()
		tag, err := conn.Exec(ctx, ackedSQL, c.name, c.at.Epoch, int64(c.at.Position), int64(c.acked),
			c.server.startedAt, c.server.databaseOID)
		if err == nil && tag.RowsAffected() == 1 {
			c.at.Position, c.written = c.acked, time.Now()
			return
		}
		if err != nil && c.ctx.Err() == nil {
			c.logger.Warn("daybook: could not write what was acked, trying again", slog.Any("error", err))
		}
		again = c.retry
	}
	if c.open {
		c.timer = time.AfterFunc(again, c.due)
	}
}

// acquireSpare returns a connection that the pool has to spare; nil where it has none. Handlers use the same pool, so it
// does not queue up with them.
func acquireSpare(ctx context.Context, pool *pgxpool.Pool) *pgxpool.Conn {
	stat := pool.Stat()
	if stat.IdleConns() == 0 && stat.TotalConns() >= stat.MaxConns() {
		return nil
	}
	// Another may have been quicker. A new connection that takes longer than this is found idle by the next try.
	ctx, cancel := context.WithTimeout(ctx, ackedInterval)
	defer cancel()
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil
	}
	return conn
}
