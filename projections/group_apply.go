package projections

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/ledger"
)

// Names returns the names of the group's projections, sorted.
func (g *Group) Names() []string {
	names := make([]string, len(g.runners))
	for i, r := range g.runners {
		names[i] = r.Name()
	}
	return names
}

// Open is [Runner.Open] of one of the group's projections.
func (g *Group) Open(ctx context.Context, db ledger.Querier, name string) (ledger.Cursor, error) {
	for _, r := range g.runners {
		if r.Name() == name {
			return r.Open(ctx, db)
		}
	}
	return ledger.Cursor{}, fmt.Errorf("daybook: projection %s is not in the group", name)
}

// Apply folds events into those of the group's projections that from names, into each those of the positions beyond its
// cursor up to through, and moves their cursors; all in the caller's transaction, in batches of [DefaultBatch], of which
// each is read once. through must have been sequenced; a projection that is there already is passed over.
//
// A projection that cannot go on does not hold up the others: its part of a batch is undone, back to a savepoint, and its
// error is in failed, as [Runner.Apply] would return it, or one that may pass, such as a deadlock. Those that are not in it
// are at through. One that is may have come part of the way, by whole batches.
//
// err is about all of them: the ledger could not be read, the connection is lost, ctx has ended. After it the transaction must
// be rolled back. Otherwise the caller may go on in it, with names that have a schema: the search_path stays pinned until it
// ends.
func (g *Group) Apply(
	ctx context.Context, tx pgx.Tx, from map[string]ledger.Cursor, through ledger.Position,
) (failed map[string]error, err error) {
	var lanes []*lane
	for _, r := range g.runners {
		if at, ok := from[r.Name()]; ok {
			lanes = append(lanes, r.lane(at))
		}
	}
	if len(lanes) != len(from) {
		return nil, fmt.Errorf("daybook: apply to a group: %d projections are asked for, %d of them are in it", len(from), len(lanes))
	}
	s := savepoint{tx: tx}
	if err := g.apply(ctx, tx, &s, lanes, through); err != nil {
		return nil, atBoundary("apply to a group", err)
	}
	failed = map[string]error{}
	for _, l := range lanes {
		if l.err != nil {
			failed[l.Name] = l.err
		}
	}
	return failed, nil
}

func (g *Group) apply(ctx context.Context, tx pgx.Tx, s *savepoint, lanes []*lane, through ledger.Position) error {
	kinds := kindsOf(lanes)
	for {
		at, ok := hindmost(behind(lanes, through))
		if !ok {
			return nil
		}
		events, read, err := readWindow(ctx, tx, at, min(DefaultBatch, int(through-at)), kinds)
		if err != nil {
			return err
		}
		for _, l := range behind(lanes, read) {
			err := s.take(ctx, l, read)
			if err == nil {
				err = l.fold(ctx, tx, l.at.Position, l.pick(l.at.Position, events))
			}
			if err == nil {
				l.at.Position = read
				continue
			}
			if err := s.undo(ctx, err); err != nil {
				return err
			}
			l.err = err
		}
	}
}
