package projections

import (
	"context"
	_ "embed" // the statement
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/daybook-go/daybook/ledger"
)

//go:embed sql/live_version.sql
var liveVersionSQL string

// place is one set of a projection's tables.
type place struct {
	schema string
	// cursor is the name of the cursor that says how far they are; "" where that is kept in memory alone.
	cursor string
	// role is who folds; "" is whoever is connected.
	role string
	// live tables have a version that must be the fold's.
	live bool
	// shadow tables come and go with their cursor.
	shadow bool
}

// lane is a projection on its way through the ledger, over one set of its tables.
type lane struct {
	Projection
	place  place
	slice  slice
	tracer trace.Tracer
	at     ledger.Cursor
	// err is why it goes no further.
	err error
}

// take moves the lane's cursor, which locks it, and pins the search_path to the lane's tables; it returns what that was
// before. The cursor comes first, so that of two runners the second does nothing in vain.
func (l *lane) take(ctx context.Context, tx pgx.Tx, through ledger.Position) (previous string, err error) {
	if l.place.cursor != "" {
		if err := ledger.MoveCursor(ctx, tx, l.place.cursor, l.at, through); err != nil {
			return "", err
		}
	}
	if l.place.role != "" {
		if err := setRole(ctx, tx, l.place.role); err != nil {
			return "", fmt.Errorf("daybook: projection %s: %w", l.Name, err)
		}
	}
	if l.place.shadow {
		// Rows and cursor are lost together, if at all, and the swap waits for all of it to be on disk.
		if _, err := tx.Exec(ctx, "set local synchronous_commit = off"); err != nil {
			return "", fmt.Errorf("daybook: projection %s: set synchronous_commit: %w", l.Name, err)
		}
	}
	if l.place.live {
		var version *int
		if err := tx.QueryRow(ctx, liveVersionSQL, l.Name).Scan(&version); err != nil {
			return "", fmt.Errorf("daybook: projection %s: read its version: %w", l.Name, err)
		}
		if err := l.suits(version); err != nil {
			return "", err
		}
	}
	if previous, err = pinPath(ctx, tx, searchPath(l.place.schema)); err != nil {
		return "", fmt.Errorf("daybook: projection %s: %w", l.Name, err)
	}
	return previous, nil
}

// suits checks the version of the live tables, nil where they were never opened: it must be that of the fold.
func (l *lane) suits(live *int) error {
	if live != nil && *live != l.Version {
		return &VersionError{Projection: l.Name, Live: *live, Built: l.Version}
	}
	return nil
}

// fold folds a batch that follows a position. Its error is a *FoldError, or one that passes.
func (l *lane) fold(ctx context.Context, tx pgx.Tx, after ledger.Position, events []ledger.Event) (err error) {
	if len(events) == 0 {
		return nil
	}
	ctx, span := l.tracer.Start(ctx, "daybook.project", trace.WithAttributes(
		attribute.String("daybook.projection", l.Name),
		attribute.Int64("daybook.after", int64(after)),
		attribute.Int("daybook.events", len(events)),
	))
	defer span.End()
	err = l.Fold(ctx, foldTx{tx}, events)
	if err == nil {
		return nil
	}
	// A driver's error may hold anything, so its text stays out.
	span.SetStatus(codes.Error, fmt.Sprintf("%T", err))
	if passing(ctx, tx, err) {
		return fmt.Errorf("daybook: projection %s: fold after position %d: %w", l.Name, after, err)
	}
	failed := &FoldError{Projection: l.Name, Position: after + 1, Err: err}
	if bad := (*FoldError)(nil); errors.As(err, &bad) {
		failed.Position, failed.EventID, failed.Kind, failed.Err = bad.Position, bad.EventID, bad.Kind, bad.Err
	}
	return failed
}

func setRole(ctx context.Context, tx pgx.Tx, role string) error {
	if _, err := tx.Exec(ctx, "set local role "+quoted(role)); err != nil {
		return fmt.Errorf("become %s: %w", role, err)
	}
	return nil
}
