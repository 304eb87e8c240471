package projections

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/daybook-go/daybook/ledger"
)

// FoldError says at which event a projection stopped, and why. Everything before Position is folded; the cursor
// stands right before it.
type FoldError struct {
	Projection string
	// Position, EventID and Kind are those of the event that could not be folded. EventID is 0 where the fold failed
	// on the event without saying so through [BadEvent].
	Position ledger.Position
	EventID  int64
	Kind     ledger.Kind
	Err      error
}

// Error names the projection, the position and the reason.
func (e *FoldError) Error() string {
	what := fmt.Sprintf("event at position %d", e.Position)
	if e.EventID != 0 {
		what = fmt.Sprintf("event %d (%s) at position %d", e.EventID, e.Kind, e.Position)
	}
	if e.Projection == "" {
		return fmt.Sprintf("daybook: cannot fold the %s: %v", what, e.Err)
	}
	return fmt.Sprintf("daybook: projection %s stopped before the %s: %v", e.Projection, what, e.Err)
}

// Unwrap returns the reason.
func (e *FoldError) Unwrap() error { return e.Err }

// BadEvent is how a [Fold] says that one event is the reason for an error. The runner adds the projection.
func BadEvent(event ledger.Event, err error) error {
	return &FoldError{Position: event.Position, EventID: event.ID, Kind: event.Kind, Err: err}
}

// VersionError says that the live tables hold another version of the projection than this build has.
type VersionError struct {
	Projection string
	// Live is the version in the database, Built the one of this build.
	Live, Built int
}

// Error names both versions and says what to do.
func (e *VersionError) Error() string {
	advice := "run daybook rebuild " + e.Projection
	if e.Live > e.Built {
		advice = "a newer build has rebuilt it; stop this one"
	}
	return fmt.Sprintf("daybook: projection %s is at version %d in the database and at version %d in this build; %s",
		e.Projection, e.Live, e.Built, advice)
}

// passing reports whether an error is about the moment and not about an event: the same events may fold well when
// they are tried again, so that looking for the bad one among them would find an innocent one.
func passing(ctx context.Context, tx pgx.Tx, err error) bool {
	if ctx.Err() != nil || tx.Conn().IsClosed() || errors.Is(err, ledger.ErrCursorMoved) {
		return true
	}
	if version := (*VersionError)(nil); errors.As(err, &version) {
		return true
	}
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return false
	}
	// Connections, rollbacks, resources, locks, operators, the system.
	switch pgErr.Code[:2] {
	case "08", "40", "53", "55", "57", "58":
		return true
	}
	return false
}

// atBoundary wraps an error where it leaves the package, once: those that begin like this package's own say already
// what they are about.
func atBoundary(doing string, err error) error {
	if strings.HasPrefix(err.Error(), "daybook: ") {
		return err
	}
	return fmt.Errorf("daybook: %s: %w", doing, err)
}
