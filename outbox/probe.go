package outbox

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/daybook-go/daybook/ledger"
)

// probe finds out soon that there is something to sequence. Nobody tells: a notification in the transaction that
// enqueues would make commits wait for one another. So it asks every few milliseconds which event id was drawn last,
// and sequences when that has moved.
//
// What was drawn need not be committed, now or ever. While looks find nothing they come at growing intervals, up to the
// longest wait of a reader; then the probe rests until another id is drawn, and the readers' polls find what commits.
//
// It asks in statements of their own, so that between two of them it holds no transaction and no snapshot.
type probe struct {
	listener *listener
	conn     *pgx.Conn
	next     time.Time // of the next question

	drawn   int64         // the last id that was drawn
	pending bool          // something may be there that has no position yet
	looked  bool          // since then
	pace    time.Duration // from the last look, if it found nothing, to the next
	flow    time.Duration // from a look that found something to the next, while each finds something
	lookAt  time.Time     // not before
}

// listening begins each statement on a connection that listens: by its last one, ledger.ReadStatus tells who does.
const listening = "-- listening on " + ledger.NotifyChannel + "\n"

// longestFlow is the longest time between two looks while each finds something. Every round costs each reader a page or
// a fold, however little is in it: on a busy ledger, fewer and larger ones.
const longestFlow = 10 * time.Millisecond

// silence is how long the server may take for an answer: a server that is gone without a word never answers.
const silence = time.Minute

func newProbe(l *listener, conn *pgx.Conn) *probe {
	now := time.Now()
	return &probe{listener: l, conn: conn, next: now, pending: true, pace: firstWait, lookAt: now}
}

func (p *probe) off() bool { return p.listener.probe < 0 || p.listener.refused.Load() }

// due says whether it is time for the next question.
func (p *probe) due() bool { return !p.off() && !time.Now().Before(p.next) }

// await waits for a notification, or for the time of the next question: then it returns neither that nor an error.
func (p *probe) await(ctx context.Context) (*pgconn.Notification, error) {
	if p.off() {
		return p.conn.WaitForNotification(ctx)
	}
	waiting, cancel := context.WithDeadline(ctx, p.next)
	defer cancel()
	// The end of a wait does not cost the connection: nothing was asked, so no answer is under way.
	notification, err := p.conn.WaitForNotification(waiting)
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	return notification, err
}

// run asks, and looks where there is something to look for.
func (p *probe) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	err := p.ask(ctx)
	p.next = time.Now().Add(p.listener.probe)
	if p.pending && p.lookAt.Before(p.next) {
		p.next = p.lookAt
	}
	var fromServer *pgconn.PgError
	if errors.As(err, &fromServer) && fromServer.Code == "42501" {
		// The right to ask came with a migration. Without it there is still what others notify.
		p.listener.logger.Warn("daybook: may not ask for new events, an idle reader finds them by polling",
			slog.Any("error", err))
		p.listener.refused.Store(true)
		return nil
	}
	return err
}

func (p *probe) ask(ctx context.Context) error {
	due := !time.Now().Before(p.lookAt)
	if p.pending && p.looked && due {
		return p.lookAgain(ctx)
	}
	var drawn int64
	if err := p.row(ctx, probeSQL).Scan(&drawn); err != nil {
		return err
	}
	if drawn != p.drawn {
		p.drawn, p.pending = drawn, true
	}
	switch {
	case !due:
	case p.pending:
		return p.look(ctx)
	default:
		// It has been quiet for as long as the last wait would have taken.
		p.pace = firstWait
	}
	return nil
}

// look sequences, for all of this process who wait. They hear of it by the notification.
func (p *probe) look(ctx context.Context) error {
	sequenced, err := ledger.Sequence(ctx, p)
	if err != nil {
		return err
	}
	p.looked = true
	if sequenced > 0 {
		p.pace = firstWait
		p.flow = min(max(2*p.flow, p.listener.probe), longestFlow)
		p.lookAt = time.Now().Add(max(p.flow, p.listener.probe))
		if p.listener.pollOnly {
			p.listener.wakeAll()
		}
		return nil
	}
	p.flow = 0
	p.lookAt = time.Now().Add(p.pace)
	if p.pace == p.listener.longest {
		p.rest()
	}
	p.pace = min(2*p.pace, p.listener.longest)
	return nil
}

// lookAgain looks, unless the last look has left nothing: everything that was drawn is behind the head, and no gap is
// open.
func (p *probe) lookAgain(ctx context.Context) error {
	var (
		last    ledger.Position
		head    int64
		settled bool
	)
	if err := p.row(ctx, settledSQL).Scan(&p.drawn, &last, &head, &settled); err != nil {
		return err
	}
	// Where another process was faster, and this one cannot listen.
	p.listener.given(last)
	if settled && p.drawn <= head {
		p.rest()
		return nil
	}
	return p.look(ctx)
}

// rest waits for another id to be drawn.
func (p *probe) rest() { p.pending, p.looked, p.flow = false, false, 0 }

// Query makes a probe a ledger.Querier.
func (p *probe) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return p.conn.Query(ctx, p.mark(sql), args...)
}

func (p *probe) row(ctx context.Context, sql string) pgx.Row {
	return p.conn.QueryRow(ctx, p.mark(sql))
}

func (p *probe) mark(sql string) string {
	if p.listener.pollOnly {
		return sql
	}
	return listening + sql
}
