package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/cmd/daybook/internal/show"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/projections"
)

// readerKind tells the cursors of consumer groups, relays, projections and unfinished rebuilds apart.
type readerKind string

const (
	readerGroup      readerKind = "consumer group"
	readerRelay      readerKind = "relay"
	readerProjection readerKind = "projection"
	readerRebuild    readerKind = "rebuild"
)

// readerOf returns whose cursor it is, by its name: that of a consumer group has a "/" between group and topic, the
// others have none.
func readerOf(cursor string) (readerKind, string) {
	if strings.Contains(cursor, "/") {
		return readerGroup, cursor
	}
	if name, ok := strings.CutPrefix(cursor, outbox.RelayCursorName("")); ok {
		return readerRelay, name
	}
	if name, ok := strings.CutPrefix(cursor, projections.CursorName("")); ok {
		return readerProjection, name
	}
	if name, ok := strings.CutPrefix(cursor, "rebuild:"); ok {
		return readerRebuild, name
	}
	return readerGroup, cursor
}

// projectionNames returns the names of the built-in projections.
func projectionNames() []string {
	var names []string
	for _, p := range projections.Builtin() {
		names = append(names, p.Name)
	}
	return names
}

// chosenProjections returns the projections of those names, all of them where there is none.
func chosenProjections(names []string) ([]projections.Projection, error) {
	all := projections.Builtin()
	if len(names) == 0 {
		return all, nil
	}
	var chosen []projections.Projection
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		i := slices.IndexFunc(all, func(p projections.Projection) bool { return p.Name == name })
		if i < 0 {
			return nil, usagef("they are "+strings.Join(projectionNames(), ", "), "there is no projection %q", name)
		}
		chosen = append(chosen, all[i])
	}
	return chosen, nil
}

// noteLag says on standard error where a view is not up to date, so that nobody takes an empty one for an empty ledger.
func (a *app) noteLag(ctx context.Context, pool *pgxpool.Pool, projection string) error {
	status, err := ledger.ReadStatus(ctx, pool)
	if err != nil {
		return err
	}
	behind := int64(status.Head) + status.Unsequenced.Events
	for _, c := range status.Cursors {
		if c.Name == projections.CursorName(projection) {
			behind = c.Lag.Events
		}
	}
	if behind > 0 {
		fmt.Fprintf(a.Stderr, "note: %s is %s behind the ledger; daybook project keeps it up to date\n",
			projection, show.Plural(behind, "event", "events"))
	}
	return nil
}
