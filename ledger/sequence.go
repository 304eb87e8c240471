package ledger

import (
	"context"
	_ "embed" // the statement
	"fmt"

	"github.com/jackc/pgx/v5"
)

//go:embed sql/sequence.sql
var sequenceSQL string

// NotifyChannel is the PostgreSQL channel on which each round of sequencing that gave out positions says the last one.
const NotifyChannel = "daybook_sequenced"

// SequenceLimit is how many events one round of [Sequence] takes at most.
const SequenceLimit = 5000

// Sequence gives positions to all events that have committed, and returns how many it gave. Every reader calls it
// before it reads, so that there is no daemon to forget. While another process is at it, it returns at once: that
// one does the work.
//
// db must not be a transaction that has written anything: each round is a transaction of its own. Where db is a
// pool or a connection outside a transaction it always is. On error it returns what was given before it. The role needs
// what daybook_relay has.
func Sequence(ctx context.Context, db Querier) (int, error) {
	total := 0
	for {
		rows, err := db.Query(ctx, sequenceSQL, SequenceLimit)
		if err != nil {
			return total, fmt.Errorf("daybook: sequence: %w", err)
		}
		round, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[sequenceRound])
		if err != nil {
			return total, fmt.Errorf("daybook: sequence: %w", err)
		}
		if round.Sequenced == nil {
			return total, nil
		}
		total += *round.Sequenced
		if !*round.More {
			return total, nil
		}
	}
}

type sequenceRound struct {
	Sequenced    *int
	LastPosition *Position
	More         *bool
}
