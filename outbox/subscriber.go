package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"

	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/daybook-go/daybook/ledger"
)

// ErrClosed is returned by Subscribe of a Subscriber that was closed.
var ErrClosed = errors.New("daybook: the subscriber is closed")

// Subscriber is a Watermill message.Subscriber (and message.SubscribeInitializer) of the ledger's events, for one
// consumer group. It is safe for concurrent use.
//
// Messages of a subscription come one after another, in position order; the next when the last was acked. A message
// that is nacked comes again, and what lies behind it waits.
//
// A handler that writes to the database does so in a transaction of its own. The one that watermill-sql puts into a
// message's context is not for handlers: it is committed whatever becomes of the message, and a nacked message is
// delivered again inside the same one.
//
// # What a handler holds up
//
// While a page is being handled, its transaction stays open. It has no xid, no snapshot and no lock on a row, so
// neither writers, the sequencer, other groups nor vacuum wait for it, however slow a handler is. It does hold ACCESS
// SHARE on the tables it has read: DDL on daybook.event, ledger_order, cursor, meta and sequencer waits until the page
// ends, and what comes behind that DDL waits with it. Run migrations with a lock_timeout, or close the subscribers
// first. A page ends with the first message that is not acked within AckDeadline, and it grows only while messages are
// quick; with a PageSize of 1, AckDeadline is the most that anybody waits.
//
// # After a kill
//
// A process that is killed in a handler gets that message again, and those behind it; what was acked before does not
// come again. The cursor is written at the end of a page; before a message is handed over, where the handler of the one before
// took 20 ms or longer, or it was last written 20 ms ago or longer; and at the latest 20 ms after a message was acked, while
// the next is being handled. So what may come again besides is what was acked within the last 20 ms, and the time of one
// write, before the kill: nothing at all where each handler takes 20 ms or longer.
//
// Three things make it more. These writes are made on a connection that the pool has to spare, and a message waits for
// no more than one attempt: while handlers have all connections, a new one takes longer than 20 ms to be made (the
// pool's pool_min_conns keeps some ready), somebody has locked the cursor's row, or DDL waits for the table, the cursor stays
// where it is, and is tried again. A write in the midst of a page does not wait for the disk, so a crash of the server
// itself may take back the last of them (those within three times its wal_writer_delay, by default 0.6 s).
//
// And a server that ends in the midst of a page takes the group with it. On the one that comes back, or a standby in its
// place, nothing of that page is written, because another member may have the group by then, or the epoch be another. The
// rest of the page is still handed over, from memory; when that is done, everything since the last write comes again, which
// with slow handlers is their work done twice. A smaller PageSize makes that less.
//
// A connection that breaks, and a Close, bring back nothing that was acked as a rule: what watermill-sql has not written,
// or was not told of, is written on a connection that the pool has to spare. That is tried for up to a second, or twice
// where it fails. Where handlers have all connections for that long, or the cursor stays locked, it comes again.
type Subscriber struct {
	config Config
	// db is the caller's pool for watermill-sql, which knows database/sql only.
	db       *sql.DB
	listener *listener // nil: polling only
	beats    *beater
	// slots keeps one connection of the pool free: a page being handled holds one, and its handler may need another.
	slots chan struct{}

	closing context.Context //nolint:containedctx // ends with the Subscriber, and every subscription with it
	close   context.CancelFunc

	mu            sync.Mutex
	closed        bool
	subscriptions sync.WaitGroup
	failures      []error
}

// NewSubscriber checks the configuration. It does not touch the database; Subscribe does.
func NewSubscriber(config Config) (*Subscriber, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	s := &Subscriber{
		config: config,
		db:     stdlib.OpenDBFromPool(config.Pool),
		beats:  newBeater(config.Pool, ledger.RunnerSubscriber, config.Logger),
		slots:  make(chan struct{}, config.Pool.Config().MaxConns-1),
	}
	s.closing, s.close = context.WithCancel(context.Background())
	s.listener = newListener(listenerConfig{
		pool: config.Pool, logger: config.Logger, retry: config.RetryInterval,
		pollOnly: config.PollOnly, probe: config.ProbeInterval, longest: config.PollInterval,
	})
	return s, nil
}

// Subscribe returns the messages of a topic: [TopicAll], or [Topic] of a kind. It opens the group's cursor for that
// topic and returns a [*ledger.EpochError] where the cursor belongs to another epoch than the ledger is in.
//
// The subscription ends when ctx does or the Subscriber is closed. Messages that were acked by then stay acked. One
// whose ack comes at the same moment may come again: where it was nacked before, or where the pool has no connection to
// spare on which that ack can be written (see Subscriber). One that is being handled has its
// context cancelled, and comes again to whoever subscribes next. The subscription also
// ends, with a log entry and [Subscriber.Err], when the ledger's epoch changes. In each case the channel is closed.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	sub, err := s.newSubscription(ctx, topic)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	// One subscriber of watermill-sql for each subscription: so each can be ended alone.
	v3, err := watermillsql.NewSubscriber(beginner{DB: s.db, subscription: sub}, watermillsql.SubscriberConfig{
		ConsumerGroup:  s.config.ConsumerGroup,
		AckDeadline:    &s.config.AckDeadline,
		ResendInterval: s.config.ResendInterval,
		SchemaAdapter:  sub,
		OffsetsAdapter: offsets{sub},
		BackoffManager: sub,
		// Nothing is created at run time: the migrations have done that.
		InitializeSchema: false,
	}, watermillLogger{s.config.Logger})
	if err != nil {
		return nil, fmt.Errorf("daybook: subscribe to %s: %w", topic, err)
	}
	// A context that ends would take watermill-sql's transaction with it, and with that the messages of the page
	// that were acked already. So it gets one that does not end, and is closed instead: then it acknowledges what
	// was acked, and stops.
	sub.start(ctx)
	messages, err := v3.Subscribe(context.WithoutCancel(ctx), topic)
	if err != nil {
		sub.release()
		return nil, fmt.Errorf("daybook: subscribe to %s: %w", topic, err)
	}
	s.subscriptions.Go(func() {
		<-sub.ending.Done()
		sub.finish(v3, messages)
	})
	return messages, nil
}

// SubscribeInitialize makes the group's cursor for a topic, where there is none, at Config.Start. Whoever begins
// with [FromNow] calls it, or Subscribe, before the first event that matters.
func (s *Subscriber) SubscribeInitialize(topic string) error {
	_, err := s.openCursor(s.closing, topic)
	return err
}

func (s *Subscriber) openCursor(ctx context.Context, topic string) (ledger.Cursor, error) {
	start, err := s.config.Start.resolve(ctx, s.config.Pool)
	if err != nil {
		return ledger.Cursor{}, err
	}
	return ledger.OpenCursor(ctx, s.config.Pool, s.cursorName(topic), start)
}

func (s *Subscriber) cursorName(topic string) string { return s.config.ConsumerGroup + "/" + topic }

// Close ends every subscription, and waits until their goroutines, their connections and the listening connection are
// gone. An ack that comes at the same moment is written then, where the pool has a connection to spare within about a
// second; otherwise that message comes again. The pool stays open: it is the caller's. A second Close does nothing but wait. It returns nil.
func (s *Subscriber) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.close()
	s.subscriptions.Wait()
	s.beats.close()
	s.listener.close()
	return s.db.Close()
}

// Err returns why subscriptions have ended that nobody has ended, joined; nil where none has.
func (s *Subscriber) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.failures...)
}

func (s *Subscriber) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failures = append(s.failures, err)
}
