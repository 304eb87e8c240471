package projections

import (
	"cmp"
	"context"
	_ "embed" // the statement
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/ledger"
)

//go:embed sql/decision_rate_fold.sql
var decisionRateFoldSQL string

// ViewDecisionRate is view_decision_rate: how often PostgreSQL decided what. Replayed and coalesced requests leave no
// event and do not count; the metrics of package commands have them.
func ViewDecisionRate() Projection {
	return Projection{
		Name:    "view_decision_rate",
		Version: 1,
		Tables:  []string{"view_decision_rate"},
		Kinds: []ledger.Kind{
			ledger.KindAccepted, ledger.KindReplaced, ledger.KindNonReplaceable, ledger.KindConflictRejected,
		},
		Fold: foldDecisionRate,
	}
}

// rateKey is a row of view_decision_rate. The minute is in seconds since 1970: as a key, a time.Time is slow and
// subtle.
type rateKey struct {
	minute                     int64
	scope, queue, typ, outcome string
}

type rateCount struct{ decisions, firstPosition int64 }

func foldDecisionRate(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
	counts, bodies := map[rateKey]rateCount{}, newBodies()
	for i := range events {
		event := &events[i]
		var body decisionBody
		if err := bodies.read(event, &body, &body); err != nil {
			return err
		}
		// Times before 1970 are rounded down, too.
		seconds := event.RecordedAt.Unix()
		key := rateKey{seconds - (seconds%60+60)%60, event.Scope, body.Queue, body.Type, outcomeOf(event.Kind)}
		count, seen := counts[key]
		if !seen {
			count.firstPosition = int64(event.Position)
		}
		count.decisions++
		counts[key] = count
	}

	// In the order of the primary key: it is how the index is laid out.
	keys := slices.SortedFunc(maps.Keys(counts), func(a, b rateKey) int {
		return cmp.Or(cmp.Compare(a.minute, b.minute), cmp.Compare(a.scope, b.scope), cmp.Compare(a.queue, b.queue),
			cmp.Compare(a.typ, b.typ), cmp.Compare(a.outcome, b.outcome))
	})
	var (
		minutes, decisions, firsts      = instants{}, []int64{}, []int64{}
		scopes, queues, types, outcomes = []string{}, []string{}, []string{}, []string{}
	)
	for _, key := range keys {
		minutes = append(minutes, instant(time.Unix(key.minute, 0)))
		decisions = append(decisions, counts[key].decisions)
		firsts = append(firsts, counts[key].firstPosition)
		scopes, queues = append(scopes, key.scope), append(queues, key.queue)
		types, outcomes = append(types, key.typ), append(outcomes, key.outcome)
	}
	_, err := tx.Exec(ctx, decisionRateFoldSQL, minutes, scopes, queues, types, outcomes, decisions, firsts)
	return err
}
