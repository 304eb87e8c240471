package outbox

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/ledger"
)

// RangeHandler is a projection as a Projector sees it: something that folds ranges of positions. Package projections
// has them; this package does not know what they do.
type RangeHandler interface {
	// Name is the projection's name.
	Name() string
	// Open returns the projection's cursor, and makes it where there is none.
	Open(ctx context.Context, db ledger.Querier) (ledger.Cursor, error)
	// Apply folds the events of the positions (from.Position, through] and moves the cursor from from to through, all
	// in tx, which the caller commits, or rolls back where Apply returns an error. [ledger.ErrCursorMoved] says that
	// another runner was faster; it is no failure.
	Apply(ctx context.Context, tx pgx.Tx, from ledger.Cursor, through ledger.Position) error
}

// RangeGroup is several projections as a Projector sees them, which are folded in one transaction, so that the ledger is
// read once for all of them. Package projections has those, too: its Group.
type RangeGroup interface {
	// Names are the names of the projections, at least one, each once.
	Names() []string
	// Open returns the cursor of one of them, and makes it where there is none.
	Open(ctx context.Context, db ledger.Querier, name string) (ledger.Cursor, error)
	// Apply folds events into the projections that from names, into each those of the positions beyond its cursor up to
	// through, and moves the cursors, all in tx, which the caller commits.
	//
	// What it could not fold is in failed, by name, and undone in tx, whose savepoints keep the others: a projection that is
	// not in it is at through. One that is may have come part of the way, so its cursor is read anew.
	// [ledger.ErrCursorMoved] in it says that another runner was faster; it is no failure. Where Apply returns err, the
	// caller rolls back.
	Apply(ctx context.Context, tx pgx.Tx, from map[string]ledger.Cursor, through ledger.Position) (failed map[string]error, err error)
}

// alone is a group of one.
type alone struct{ handler RangeHandler }

func (a alone) Names() []string { return []string{a.handler.Name()} }

func (a alone) Open(ctx context.Context, db ledger.Querier, _ string) (ledger.Cursor, error) {
	return a.handler.Open(ctx, db)
}

func (a alone) Apply(
	ctx context.Context, tx pgx.Tx, from map[string]ledger.Cursor, through ledger.Position,
) (failed map[string]error, err error) {
	name := a.handler.Name()
	err = a.handler.Apply(ctx, tx, from[name], through)
	if errors.Is(err, ledger.ErrCursorMoved) {
		return map[string]error{name: err}, nil
	}
	return nil, err
}
