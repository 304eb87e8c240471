package ledger

import (
	"context"
	_ "embed" // the statements
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

var (
	//go:embed sql/cursor_open.sql
	cursorOpenSQL string
	//go:embed sql/cursor_move.sql
	cursorMoveSQL string
)

// Cursor is a reader's place: a position, and the epoch in which it means something.
type Cursor struct {
	Epoch    int64
	Position Position
}

// ErrCursorMoved is returned by [MoveCursor] where the cursor is not where the caller believed it to be: another
// runner has moved it. What the caller did from there must be rolled back.
var ErrCursorMoved = errors.New("daybook: the cursor was moved by another runner")

// OpenCursor returns the cursor of that name; where there is none it makes one at start. It returns an
// [*EpochError] where the cursor belongs to another epoch than the ledger is in, and where the ledger is not where its
// epoch began: after a restore nothing is read before somebody has decided what shall be.
//
// The first cursor that is opened in a ledger makes it known where the ledger is. In a transaction whose snapshot is older
// than the cursor it cannot be seen, and that is an error. The role needs what daybook_relay has.
func OpenCursor(ctx context.Context, db Querier, name string, start Position) (Cursor, error) {
	// Two that open a new cursor at once: the one whose insert lost does not see the winner's row in the same
	// statement, and finds it in the next.
	for range 3 {
		rows, err := db.Query(ctx, cursorOpenSQL, name, int64(start))
		if err != nil {
			return Cursor{}, fmt.Errorf("daybook: open cursor %q: %w", name, err)
		}
		type row struct {
			lifeRow
			CursorEpoch    *int64
			CursorPosition *Position
		}
		found, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[row])
		if err != nil {
			return Cursor{}, fmt.Errorf("daybook: open cursor %q: %w", name, err)
		}
		cursor := Cursor{Epoch: orZero(found.CursorEpoch), Position: orZero(found.CursorPosition)}
		epoch, err := found.check(name, cursor)
		if err != nil {
			return cursor, err
		}
		if found.CursorEpoch == nil {
			continue
		}
		if cursor.Epoch != epoch {
			return cursor, &EpochError{Name: name, Cursor: cursor, CurrentEpoch: epoch}
		}
		return cursor, nil
	}
	return Cursor{}, fmt.Errorf("daybook: open cursor %q: it cannot be seen in this transaction's snapshot", name)
}

// MoveCursor moves the cursor of that name from one place to a later position, in the transaction that db is. It
// returns [ErrCursorMoved] where the cursor is elsewhere or the epoch has changed; the transaction stays usable. That the
// position exists and is a later one is the caller's to know, and not checked. The role needs what daybook_relay has.
func MoveCursor(ctx context.Context, db Querier, name string, from Cursor, to Position) error {
	rows, err := db.Query(ctx, cursorMoveSQL, name, from.Epoch, int64(from.Position), int64(to))
	if err != nil {
		return fmt.Errorf("daybook: move cursor %q: %w", name, err)
	}
	_, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[Position])
	if errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("daybook: move cursor %q from %d to %d: %w", name, from.Position, to, ErrCursorMoved)
	}
	if err != nil {
		return fmt.Errorf("daybook: move cursor %q: %w", name, err)
	}
	return nil
}
