package projections

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/ledger"
)

// Group folds several projections together: the ledger is read once for all of them, and each batch is one transaction.
// Like a [Runner] it holds no state between calls and is safe for concurrent use. Package outbox runs it as it runs
// a Runner, with NewGroupProjector.
type Group struct {
	runners []*Runner
}

// NewGroup returns a group of at least one runner, none of them twice.
func NewGroup(runners ...*Runner) (*Group, error) {
	if len(runners) == 0 {
		return nil, errors.New("daybook: a group needs at least one runner")
	}
	sorted := slices.SortedFunc(slices.Values(runners), func(a, b *Runner) int { return cmp.Compare(a.Name(), b.Name()) })
	for i := 1; i < len(sorted); i++ {
		if sorted[i].Name() == sorted[i-1].Name() {
			return nil, fmt.Errorf("daybook: projection %s is in the group twice", sorted[i].Name())
		}
	}
	return &Group{runners: sorted}, nil
}

// CatchUp is [Runner.CatchUp] for all projections of the group, and returns how far each has come, by name. One that
// cannot go on does not hold up the others: its error is joined to those of others that cannot, and is returned when
// the rest has caught up.
func (g *Group) CatchUp(ctx context.Context, pool *pgxpool.Pool, batch int) (map[string]ledger.Position, error) {
	positions := map[string]ledger.Position{}
	batch, err := checkBatch(batch)
	if err != nil {
		return positions, err
	}
	if _, err := ledger.Sequence(ctx, pool); err != nil {
		return positions, err
	}
	head, err := ledger.Head(ctx, pool)
	if err != nil {
		return positions, err
	}
	lanes := make([]*lane, len(g.runners))
	for i, r := range g.runners {
		cursor, err := r.Open(ctx, pool)
		lanes[i] = r.lane(cursor)
		lanes[i].err = err
	}
	w := walk{db: pool, from: &source{db: pool, kinds: kindsOf(lanes)}, lanes: lanes, batch: batch}
	defer w.from.stop()
	err = w.advance(ctx, head)
	failed := []error{err}
	for _, l := range lanes {
		positions[l.Name] = l.at.Position
		failed = append(failed, l.err)
	}
	return positions, errors.Join(failed...)
}

func checkBatch(batch int) (int, error) {
	if batch < 0 || batch > ledger.MaxPage {
		return 0, fmt.Errorf("daybook: batch is %d, must be 1 to %d, or 0 for %d", batch, ledger.MaxPage, DefaultBatch)
	}
	if batch == 0 {
		return DefaultBatch, nil
	}
	return batch, nil
}
