package outbox

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/ledger"
)

// ackedInterval is how long the cursor may stay behind the messages that were acked, while their page is being handled.
const ackedInterval = 20 * time.Millisecond

// settleTime is how long an attempt goes on to write what was acked, after a page that has failed or was closed.
const settleTime = time.Second

// beginAcked begins the transaction of a write. A request for a table behind waiting DDL gives up after ackedInterval:
// while that DDL waits for the page, and the page for this write, PostgreSQL sees no deadlock. The limit has to hold before the
// statement is prepared, which takes a lock on the table too. And a write does not wait for the disk: what a crash of the
// server takes back is delivered again, and the write at the end of the page waits.
const beginAcked = "begin isolation level read committed; set local lock_timeout = '20ms'; set local synchronous_commit = off"

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
	at      ledger.Cursor // where it is, unless somebody else has moved it
	maybe   []int64       // where it may be as well: writes of which nothing was heard
	acked   ledger.Position
	handed  time.Time // when the last message was handed over, or a little earlier
	written time.Time
	failed  bool        // the last write: the next is the timer's
	timer   *time.Timer // set while a write is due to come
}

// server tells one life of a database from any other. A pool that has lost its server may have found another in its
// place, such as one that was restored from a backup, where the same positions may be those of other events. The cursor
// there is moved by whoever has checked its epoch, and has taken the group there: that went with the server too.
type server struct {
	startedAt   time.Time
	databaseOID int64
}

// attempt is what became of one to write the cursor.
type attempt int

const (
	done      attempt = iota
	busy              // there is no connection to spare, or somebody has locked the cursor
	failed            // and was logged
	elsewhere         // somebody else has moved it, or it is not the same server
)

// begin says where the cursor is as a page begins, and on which server.
func (c *pageCursor) begin(at ledger.Cursor, on server) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.open, c.at, c.maybe, c.server, c.acked, c.handed, c.written, c.failed = true, at, nil, on, at.Position, now, now, false
}

// reached says that everything up to a position was acked, before the next message is handed over. It writes that at
// once where the handler took long, so that no message waits in vain for its successor's, or the last write is long ago;
// otherwise it sees to it that it is written soon, whatever that handler does.
func (c *pageCursor) reached(acked ledger.Position) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.open {
		return
	}
	c.acked = acked
	defer func() { c.handed = time.Now() }()
	switch slow := time.Since(c.handed) >= ackedInterval; {
	case c.timer != nil && (c.failed || !slow):
		return
	case !slow:
		if wait := ackedInterval - time.Since(c.written); wait > 0 {
			c.timer = time.AfterFunc(wait, c.due)
			return
		}
	}
	c.stopTimer()
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
// where the cursor may be.
func (c *pageCursor) end(acked ledger.Position) []int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stop()
	c.acked = acked
	from := c.places()
	c.tried(acked)
	return from
}

// settle is called after each turn, with the page's transaction closed. What was acked was acked, whatever became of that:
// where the page has failed, and where last, the position of the message that was handed over last, was acked in
// the moment in which watermill-sql was closed and looked no more. last is 0 where it was not acked.
func (c *pageCursor) settle(ended bool, last ledger.Position) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stop()
	if ended {
		c.at.Position, c.maybe = c.acked, nil
	}
	c.acked = max(c.acked, last)
	if c.acked > c.at.Position {
		c.moveAtLast()
	}
	c.acked = c.at.Position
}

// moveAtLast writes the cursor after the page, with the mutex held. A server may take a moment to see that the connection of the
// page has broken, and the page's own write keeps the cursor locked until then; and the first connection of the pool may have broken
// with it.
func (c *pageCursor) moveAtLast() {
	failures := 0
	for deadline := time.Now().Add(settleTime); ; pause(c.ctx, ackedInterval) {
		switch c.write() {
		case done, elsewhere:
			return
		case failed:
			failures++
		case busy:
		}
		if failures > 1 || c.ctx.Err() != nil || time.Now().After(deadline) {
			return
		}
	}
}

func (c *pageCursor) stop() {
	c.open = false
	c.stopTimer()
}

func (c *pageCursor) stopTimer() {
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
}

// move writes the cursor while the page goes on, with the mutex held. What could not be written is tried again.
func (c *pageCursor) move() {
	if c.acked <= c.at.Position {
		return
	}
	result := c.write()
	c.failed = result == failed
	switch result {
	case done:
	case busy:
		c.timer = time.AfterFunc(ackedInterval, c.due)
	case failed:
		c.timer = time.AfterFunc(c.retry, c.due)
	case elsewhere:
		// Nothing of this page can be written any more.
		c.stop()
	}
}

// write makes one attempt to write the cursor.
func (c *pageCursor) write() attempt {
	conn := acquireSpare(c.ctx, c.pool)
	if conn == nil {
		return busy
	}
	defer conn.Release()
	ctx, cancel := context.WithTimeout(c.ctx, closeGrace)
	defer cancel()
	result, err := c.writeOn(ctx, conn)
	var fromServer *pgconn.PgError
	switch {
	case err == nil:
		return result
	case errors.As(err, &fromServer) && fromServer.Code == "55P03": // lock_timeout
		return busy
	case c.ctx.Err() == nil:
		c.logger.Warn("daybook: could not write what was acked, trying again", slog.Any("error", err))
	}
	return failed
}

func (c *pageCursor) writeOn(ctx context.Context, conn *pgxpool.Conn) (attempt, error) {
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: beginAcked})
	if err != nil {
		return failed, err
	}
	defer func() { _ = tx.Rollback(ctx) }() // after a commit it does nothing
	var here, moved bool
	err = tx.QueryRow(ctx, ackedSQL, c.name, c.at.Epoch, c.places(), int64(c.acked), c.server.startedAt, c.server.databaseOID).
		Scan(&here, &moved)
	switch {
	case err != nil:
		return failed, err
	case !here:
		return elsewhere, nil
	case !moved:
		return busy, nil
	}
	// A commit of which nothing is heard may have been one.
	c.tried(c.acked)
	if err := tx.Commit(ctx); err != nil {
		return failed, err
	}
	c.at.Position, c.maybe, c.written = c.acked, nil, time.Now()
	return done, nil
}

// places returns where the cursor may be, unless somebody else has moved it.
func (c *pageCursor) places() []int64 { return append([]int64{int64(c.at.Position)}, c.maybe...) }

func (c *pageCursor) tried(to ledger.Position) {
	if !slices.Contains(c.maybe, int64(to)) {
		c.maybe = append(c.maybe, int64(to))
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
