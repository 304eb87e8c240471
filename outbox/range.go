package outbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/daybook-go/daybook/ledger"
)

// positions is the payload of a message that names a range: the positions up to Through, from each projection's own place
// on.
type positions struct {
	From    map[string]place `json:"from"`
	Through ledger.Position  `json:"through"`
}

type place struct {
	Epoch    int64           `json:"epoch"`
	Position ledger.Position `json:"position"`
}

// rangeMessage names the range up to a position, for members of which the first is the hindmost.
func rangeMessage(ctx context.Context, members []*member, through ledger.Position) (*message.Message, error) {
	p := positions{From: map[string]place{}, Through: through}
	for _, m := range members {
		p.From[m.name] = place(m.cursor)
	}
	payload, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("daybook: name a range: %w", err)
	}
	at := members[0].cursor
	id := fmt.Sprintf("%s/%d/%d-%d", strings.Join(slices.Sorted(maps.Keys(p.From)), "+"), at.Epoch, at.Position, through)
	return message.NewMessageWithContext(ctx, id, payload), nil
}

// outcome is what became of a range.
type outcome struct {
	// err is why nothing of it counts.
	err error
	// failed and busy are the projections for which it does not count: those that could not be folded, with the reason,
	// and those that another runner was at.
	failed map[string]error
	busy   []string
}

// observe is the middleware that tells the runner what became of a message.
func (r *runner) observe(next message.HandlerFunc) message.HandlerFunc {
	return func(msg *message.Message) ([]*message.Message, error) {
		r.outcome = outcome{}
		produced, err := next(msg)
		if err != nil {
			r.outcome.err = err
		}
		return produced, err
	}
}

// handle folds the range that a message names, in one transaction.
func (r *runner) handle(msg *message.Message) error {
	var p positions
	if err := json.Unmarshal(msg.Payload, &p); err != nil {
		return fmt.Errorf("daybook: message %s names no range: %w", msg.UUID, err)
	}
	ctx, span := r.tracer.Start(msg.Context(), "daybook.project", trace.WithAttributes(
		attribute.StringSlice("daybook.projections", slices.Sorted(maps.Keys(p.From))),
		attribute.Int64("daybook.through", int64(p.Through)),
	))
	defer span.End()
	out, err := r.apply(ctx, p)
	r.outcome = out
	// That another runner is at work, or has done what it asks for, is no failure.
	for _, e := range append(slices.Collect(maps.Values(out.failed)), err) {
		if e != nil && !errors.Is(e, ledger.ErrCursorMoved) {
			span.SetStatus(codes.Error, fmt.Sprintf("%T", e))
		}
	}
	return err
}

func (r *runner) apply(ctx context.Context, p positions) (out outcome, err error) {
	tx, err := r.projector.config.Pool.Begin(ctx)
	if err != nil {
		return out, passing{fmt.Errorf("daybook: begin a fold: %w", err)}
	}
	// After the commit it does nothing. Without the caller's end, or the connection would be thrown away.
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()

	from, err := take(ctx, tx, p)
	if err != nil {
		return out, passing{fmt.Errorf("daybook: take the projections: %w", err)}
	}
	for name := range p.From {
		if _, taken := from[name]; !taken {
			out.busy = append(out.busy, name)
		}
	}
	if len(from) == 0 {
		return out, nil
	}
	out.failed, err = r.group.Apply(ctx, tx, from, p.Through)
	if err == nil && len(out.failed) == len(from) {
		return out, nil
	}
	if err == nil {
		if err = tx.Commit(ctx); err != nil {
			err = fmt.Errorf("daybook: commit a fold: %w", err)
		}
	}
	// Whether it has committed is not known where the connection broke; the cursors, read again, will tell.
	if err != nil && tx.Conn().IsClosed() {
		err = passing{err}
	}
	return out, err
}

// take takes those of the projections that nobody else is folding, and returns their cursors.
func take(ctx context.Context, tx pgx.Tx, p positions) (map[string]ledger.Cursor, error) {
	rows, err := tx.Query(ctx, lockProjectionsSQL, slices.Sorted(maps.Keys(p.From)))
	if err != nil {
		return nil, err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	from := make(map[string]ledger.Cursor, len(names))
	for _, name := range names {
		from[name] = ledger.Cursor(p.From[name])
	}
	return from, nil
}
