package outbox

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/ThreeDotsLabs/watermill"
	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/daybook-go/daybook/ledger"
)

// Page sizes follow the handler: a page that took longer than slowPage is followed by one of half the size, one that
// took less than quickPage by one of twice the size.
const (
	firstPage = 16
	slowPage  = time.Second
	quickPage = slowPage / 4
)

// What BeginTx answers where there is no page to begin. watermill-sql hands it to HandleError and begins again.
var (
	errNothingNew = errors.New("nothing new")
	errBusy       = errors.New("another member of the group is being served")
	errAgain      = errors.New("the cursor moved on over other kinds")
)

// subscription is one topic's stream. It is everything that watermill-sql asks for: it begins transactions, writes
// the queries, reads the rows, and decides how long to wait. All of that happens in the one goroutine that
// watermill-sql has for a subscription, always in the same turn:
//
//	BeginTx      sequence; take the group; find where it is; where nothing is new, say so and begin nothing
//	SelectQuery  read a page, hand over message by message
//	Consumed     before each of them: say what was acked; see pageCursor
//	AckQuery     the last write of the cursor for the page
//	HandleError  give back what was held; wait where there was nothing
type subscription struct {
	subscriber *Subscriber
	source     Source
	topic      string
	name       string
	kind       ledger.Kind // "" for all
	logger     *slog.Logger
	waiter     *waiter
	quiet      func() // ends the beat

	ending context.Context //nolint:containedctx // ends with the subscription
	end    context.CancelFunc
	// Statements under way when the subscription ends may finish, for closeGrace: a cancelled one costs its connection.
	statements context.Context //nolint:containedctx // ends a little later
	abandon    context.CancelFunc

	// What the page under way holds: a slot, and the connection of its transaction.
	slot bool
	conn *sql.Conn

	cursor   ledger.Cursor   // where the group is, as of the page's transaction
	after    ledger.Position // where the page begins: the cursor, or beyond it where other kinds lie between
	through  ledger.Position // where it ends
	head     ledger.Position // the last position given, when the group was last looked at
	pageSize int
	begun    time.Time
	lost     bool             // something failed: the server may have gone, and another come back
	read     int              // rows of the page that were read
	complete bool             // and that these were all
	last     ledger.Position  // of the last of them
	dropped  bool             // the page's snapshot
	handed   watermillsql.Row // what was handed over last

	pageCursor pageCursor
}

func (s *Subscriber) newSubscription(ctx context.Context, topic string) (*subscription, error) {
	kind, err := kindOf(topic)
	if err != nil {
		return nil, err
	}
	cursor, err := s.openCursor(ctx, topic)
	if err != nil {
		return nil, err
	}
	source, err := ReadSource(ctx, s.config.Pool)
	if err != nil {
		return nil, err
	}
	return &subscription{
		subscriber: s,
		source:     source,
		topic:      topic,
		name:       s.cursorName(topic),
		kind:       kind,
		cursor:     cursor,
		pageSize:   min(firstPage, s.config.PageSize),
		logger:     s.config.Logger.With(slog.String("consumer_group", s.config.ConsumerGroup), slog.String("topic", topic)),
	}, nil
}

// start readies what ends with the subscription, which is when ctx or the Subscriber does.
func (s *subscription) start(ctx context.Context) {
	s.ending, s.end = context.WithCancel(s.subscriber.closing)
	stop := context.AfterFunc(ctx, s.end)
	context.AfterFunc(s.ending, func() { stop() })
	s.statements, s.abandon = context.WithCancel(context.WithoutCancel(ctx))
	s.pageCursor = pageCursor{
		pool: s.subscriber.config.Pool, name: s.name, logger: s.logger, retry: s.subscriber.config.RetryInterval, ctx: s.statements,
	}
	s.waiter = newWaiter(s.subscriber.listener, s.subscriber.config.PollInterval)
	s.quiet = s.subscriber.beats.add(s.name)
}

// beginner is what watermill-sql begins its transactions with.
type beginner struct {
	*sql.DB
	subscription *subscription
}

func (b beginner) BeginTx(ctx context.Context, options *sql.TxOptions) (*sql.Tx, error) {
	return b.subscription.beginTx(ctx, options)
}

// beginTx sequences, and then begins a transaction for a page, with the group taken and the page's bounds known.
func (s *subscription) beginTx(ctx context.Context, options *sql.TxOptions) (*sql.Tx, error) {
	if s.lost {
		if _, err := ledger.CheckEpoch(s.statements, s.subscriber.config.Pool, s.name); err != nil {
			return nil, err
		}
		s.lost = false
	}
	// Before the transaction, on the pool: sequencing is a transaction of its own, at READ COMMITTED, and inside
	// watermill-sql's it would be neither. While the reader is behind, positions are there already.
	if s.through >= s.head && s.waiter.sequence() {
		if _, err := ledger.Sequence(s.statements, s.subscriber.config.Pool); err != nil {
			return nil, err
		}
	}
	select {
	case s.subscriber.slots <- struct{}{}:
		s.slot = true
	case <-s.ending.Done():
		return nil, s.ending.Err()
	}
	// A connection of our own, so that waiting for it ends with the subscription, and so that pgx can be used on it.
	conn, err := s.subscriber.db.Conn(s.ending)
	if err != nil {
		return nil, fmt.Errorf("daybook: take a connection: %w", err)
	}
	s.conn = conn
	tx, err := conn.BeginTx(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("daybook: begin a page: %w", err)
	}
	err = conn.Raw(func(driverConn any) error {
		return s.findPage(driverConn.(*stdlib.Conn).Conn())
	})
	if errors.Is(err, errAgain) {
		err = errors.Join(err, tx.Commit())
	}
	if err != nil {
		_ = tx.Rollback() // after a commit it does nothing
		return nil, err
	}
	s.begun, s.read, s.complete, s.dropped = time.Now(), 0, false, false
	return tx, nil
}

// findPage takes the group and finds the bounds of the next page, inside watermill-sql's transaction.
func (s *subscription) findPage(conn *pgx.Conn) error {
	// Both in one round trip, and still two statements with a snapshot each; see place.sql.
	batch := &pgx.Batch{}
	batch.Queue(lockSQL, s.name)
	batch.Queue(placeSQL, s.name)
	results := conn.SendBatch(s.statements, batch)
	defer func() { _ = results.Close() }()

	var (
		locked      bool
		ledgerEpoch int64
		cursor      ledger.Cursor
		head        ledger.Position
		on          server
	)
	if err := results.QueryRow().Scan(nil, nil, nil, nil, &locked); err != nil {
		return fmt.Errorf("daybook: take the consumer group: %w", err)
	}
	if !locked {
		return errBusy
	}
	err := results.QueryRow().Scan(&ledgerEpoch, &cursor.Epoch, &cursor.Position, &head, &on.startedAt, &on.databaseOID)
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("daybook: the cursor %q is gone; subscribe again to begin anew", s.name)
	}
	if err != nil {
		return fmt.Errorf("daybook: read the cursor %q: %w", s.name, err)
	}
	if err := results.Close(); err != nil {
		return fmt.Errorf("daybook: read the cursor %q: %w", s.name, err)
	}
	if cursor.Epoch != ledgerEpoch {
		return &ledger.EpochError{Name: s.name, Cursor: cursor, CurrentEpoch: ledgerEpoch}
	}
	// An operator may have begun a new epoch and brought the cursor along, between two turns.
	s.source.Epoch = ledgerEpoch
	s.cursor, s.head, s.after, s.through = cursor, head, cursor.Position, cursor.Position
	if cursor.Position >= head {
		return errNothingNew
	}
	if s.kind != "" {
		if err := s.skipOtherKinds(conn); err != nil {
			return err
		}
	}
	s.through = min(s.after+ledger.Position(s.pageSize), head)
	s.pageCursor.begin(cursor, on)
	return nil
}

// skipOtherKinds moves the page's begin to the next event of the kind. Where there is none in a large window, the
// cursor moves over that window, so that it is never read again, and the next turn goes on from there.
func (s *subscription) skipOtherKinds(conn *pgx.Conn) error {
	window := min(s.after+nextWindow, s.head)
	var next ledger.Position
	err := conn.QueryRow(s.statements, nextSQL, int64(s.after), int64(window), string(s.kind)).Scan(&next)
	if errors.Is(err, pgx.ErrNoRows) {
		s.through = window
		if err := ledger.MoveCursor(s.statements, conn, s.name, s.cursor, window); err != nil {
			return err
		}
		return errAgain
	}
	if err != nil {
		return fmt.Errorf("daybook: look for the next %s: %w", s.kind, err)
	}
	s.after = next - 1
	return nil
}

// finish waits until watermill-sql is done with an ended subscription.
func (s *subscription) finish(v3 io.Closer, messages <-chan *message.Message) {
	timer := time.AfterFunc(closeGrace, s.abandon)
	_ = v3.Close() // returns nil
	// It says that it is closed a moment before the channel is; whoever closes the Subscriber may rely on both.
	for range messages { // nothing more is sent
	}
	timer.Stop()
	s.release()
}

// release lets go of what start has readied.
func (s *subscription) release() {
	s.end()
	s.abandon()
	s.waiter.leave()
	s.quiet()
}

// HandleError is called after each turn, with the transaction closed: the place to give back what the page held, and
// to wait. A turn that found something is followed by the next at once.
func (s *subscription) HandleError(_ watermill.LoggerAdapter, noMessage bool, err error) time.Duration {
	// watermill-sql only logs a commit that has failed.
	broken := s.broken()
	s.lost = s.lost || broken
	s.giveBack()
	s.pageCursor.settle(err == nil && !broken, s.ackedLast())
	// A later ack is not looked at: the group may be another member's by then.
	s.handed = watermillsql.Row{}
	var epoch *ledger.EpochError
	switch {
	case s.ending.Err() != nil, errors.Is(err, errAgain), errors.Is(err, ledger.ErrCursorMoved):
		return 0
	case errors.Is(err, errNothingNew):
		s.waiter.wait(s.ending, s.head)
		return 0
	case errors.Is(err, errBusy):
		// Nobody tells when the other member ends, so this is the poll interval, whatever is notified.
		pause(s.ending, s.subscriber.config.PollInterval)
		return 0
	case errors.As(err, &epoch):
		s.logger.Error("daybook: the subscription ends", slog.Any("error", err))
		s.subscriber.failed(err)
		s.end()
		return time.Hour // it is woken by the end
	case err == nil && noMessage && s.read == 0:
		// watermill-sql does not ask rows for their error; there were some, or there would be no page.
		err = fmt.Errorf("daybook: the events after position %d could not be read", s.after)
	case err == nil && noMessage:
		s.logger.Warn("daybook: the message was not acknowledged and comes again", slog.Int64("after", int64(s.after)))
		s.pageSize = 1
		return 0
	}
	if err != nil {
		s.logger.Warn("daybook: could not read events, trying again", slog.Any("error", err))
		s.head, s.lost = 0, true // look at everything anew
		pause(s.ending, s.subscriber.config.RetryInterval)
		return 0
	}
	s.waiter.found()
	s.adaptPage(time.Since(s.begun))
	return 0
}

// ackedLast returns the position of the message that was handed over last; 0 where it was not acked.
func (s *subscription) ackedLast() ledger.Position {
	if s.handed.Msg == nil {
		return 0
	}
	select {
	case <-s.handed.Msg.Acked():
		return ledger.Position(s.handed.Offset)
	default:
		return 0
	}
}

func (s *subscription) adaptPage(took time.Duration) {
	switch {
	case took > slowPage:
		s.pageSize = max(1, s.pageSize/2)
	case took < quickPage:
		s.pageSize = min(2*s.pageSize, s.subscriber.config.PageSize)
	}
}

// broken reports whether the connection of the page is gone.
func (s *subscription) broken() bool {
	return s.conn != nil && s.conn.Raw(func(driverConn any) error {
		if driverConn.(*stdlib.Conn).Conn().IsClosed() {
			return driver.ErrBadConn
		}
		return nil
	}) != nil
}

func (s *subscription) giveBack() {
	if s.conn != nil {
		_ = s.conn.Close()
		s.conn = nil
	}
	if s.slot {
		<-s.subscriber.slots
		s.slot = false
	}
}
