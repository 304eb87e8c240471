package projections

import (
	"bytes"
	"context"
	_ "embed" // the statement
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/ledger"
)

//go:embed sql/key_fold.sql
var keyFoldSQL string

// ViewKey is view_key: what became of each key. Requests without a key have no row.
func ViewKey() Projection {
	return Projection{
		Name:    "view_key",
		Version: 1,
		Tables:  []string{"view_key"},
		Kinds: []ledger.Kind{
			ledger.KindAccepted, ledger.KindReplaced, ledger.KindNonReplaceable, ledger.KindConflictRejected,
			ledger.KindBindingExpired, ledger.KindBindingReleased,
		},
		Slicing: SliceByKey,
		Fold:    foldKeys,
	}
}

// keyChange is what one batch does to one row of view_key. Empty and zero mean: as it was.
type keyChange struct {
	scope, preview              string
	mode, lastOutcome, endedAs  string
	jobID                       uuid.UUID
	firstDecision, lastDecision time.Time
	expiresAt, endedAt          time.Time
	accepted, replaced          int64
	nonReplaceable, conflicts   int64
	first, last                 ledger.Position
}

func foldKeys(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
	changes, bodies := make(map[ledger.KeyHash]*keyChange, len(events)), newBodies()
	for i := range events {
		event := &events[i]
		if event.KeyHash == nil {
			continue
		}
		change, ok := changes[*event.KeyHash]
		if !ok {
			change = &keyChange{first: event.Position, jobID: event.JobID}
			changes[*event.KeyHash] = change
		}
		if err := change.add(event, bodies); err != nil {
			return err
		}
	}
	if len(changes) == 0 {
		return nil
	}
	return writeKeys(ctx, tx, changes)
}

// add is the fold of one event; what the statement does to a row with a whole batch agrees with it.
func (c *keyChange) add(event *ledger.Event, bodies *bodies) error {
	c.last, c.scope, c.preview = event.Position, event.Scope, event.KeyPreview
	switch event.Kind {
	case ledger.KindBindingExpired:
		c.endedAs, c.endedAt = "expired", event.RecordedAt
		return nil
	case ledger.KindBindingReleased:
		c.endedAs, c.endedAt = "released", event.RecordedAt
		return nil
	}

	if c.firstDecision.IsZero() {
		c.firstDecision = event.RecordedAt
	}
	c.lastDecision, c.lastOutcome = event.RecordedAt, outcomeOf(event.Kind)
	switch event.Kind {
	case ledger.KindNonReplaceable:
		c.nonReplaceable++
		return nil
	case ledger.KindConflictRejected:
		c.conflicts++
		return nil
	}

	var body decisionBody
	if err := bodies.read(event, &body, &body); err != nil {
		return err
	}
	// A replacement may move the end of the binding; the job stays.
	if !body.ExpiresAt.IsZero() {
		c.expiresAt = body.ExpiresAt
	}
	if event.Kind == ledger.KindReplaced {
		c.replaced++
		return nil
	}
	if body.Mode == "" {
		return BadEvent(*event, errors.New("a key was accepted without a mode"))
	}
	c.accepted++
	c.jobID, c.mode = event.JobID, body.Mode
	c.endedAs, c.endedAt = "", time.Time{}
	return nil
}

// statementRows is how many rows one statement of a fold writes. With more, what they are encoded into takes as much
// memory as the batch, and saves nothing.
const statementRows = 1000

func writeKeys(ctx context.Context, tx pgx.Tx, changes map[ledger.KeyHash]*keyChange) error {
	// In the order of the primary key, which begins with the first digits of the hash.
	all := slices.AppendSeq(make([]ledger.KeyHash, 0, len(changes)), maps.Keys(changes))
	slices.SortFunc(all, func(a, b ledger.KeyHash) int { return bytes.Compare(a[:], b[:]) })
	for hashes := range slices.Chunk(all, statementRows) {
		if err := writeSomeKeys(ctx, tx, changes, hashes); err != nil {
			return err
		}
	}
	return nil
}

func writeSomeKeys(
	ctx context.Context, tx pgx.Tx, changes map[ledger.KeyHash]*keyChange, hashes []ledger.KeyHash,
) error {
	n := len(hashes)
	var (
		keyHashes                           = make([][]byte, n)
		scopes, previews                    = make([]string, n), make([]string, n)
		jobIDs                              = make(uuids, n)
		modes, lastOutcomes, endedAs        = make(texts, n), make(texts, n), make(texts, n)
		firstDecisions, lastDecisions       = make(instants, n), make(instants, n)
		expiresAts, endedAts                = make(instants, n), make(instants, n)
		accepted, replaced, nonReplaceables = make([]int64, n), make([]int64, n), make([]int64, n)
		conflicts, firsts, lasts            = make([]int64, n), make([]int64, n), make([]int64, n)
	)
	for i := range hashes {
		c := changes[hashes[i]]
		keyHashes[i] = hashes[i][:]
		scopes[i], previews[i], jobIDs[i] = c.scope, c.preview, id(c.jobID)
		modes[i], lastOutcomes[i], endedAs[i] = text(c.mode), text(c.lastOutcome), text(c.endedAs)
		firstDecisions[i], lastDecisions[i] = instant(c.firstDecision), instant(c.lastDecision)
		expiresAts[i], endedAts[i] = instant(c.expiresAt), instant(c.endedAt)
		accepted[i], replaced[i], nonReplaceables[i] = c.accepted, c.replaced, c.nonReplaceable
		conflicts[i], firsts[i], lasts[i] = c.conflicts, int64(c.first), int64(c.last)
	}
	_, err := tx.Exec(ctx, keyFoldSQL, keyHashes, scopes, previews, jobIDs, modes, accepted, replaced, nonReplaceables,
		conflicts, firstDecisions, lastDecisions, lastOutcomes, expiresAts, endedAts, endedAs, firsts, lasts)
	return err
}
