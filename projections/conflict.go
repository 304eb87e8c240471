package projections

import (
	"context"
	_ "embed" // the statement
	"encoding/json"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/ledger"
)

//go:embed sql/conflict_fold.sql
var conflictFoldSQL string

// ViewConflict is view_conflict: one row for each recorded rejection.
func ViewConflict() Projection {
	return Projection{
		Name:    "view_conflict",
		Version: 1,
		Tables:  []string{"view_conflict"},
		Kinds:   []ledger.Kind{ledger.KindConflictRejected},
		Slicing: SliceByKey,
		Fold:    foldConflicts,
	}
}

func foldConflicts(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
	var (
		positions                        []int64
		rejectedAts                      instants
		boundAts, expiresAts             instants
		jobIDs                           uuids
		digests, scopes, previews        []string
		queues, types                    []string
		modes, existingModes             []string
		fields                           []string
		requestDigests, existingRequests []string
	)
	bodies := newBodies()
	for i := range events {
		event := &events[i]
		var body conflictBody
		if err := bodies.read(event, &body, &body.decisionBody); err != nil {
			return err
		}
		if event.KeyHash == nil {
			return BadEvent(*event, errors.New("a rejection without a key"))
		}
		names, err := json.Marshal(append([]string{}, body.Fields...))
		if err != nil {
			return BadEvent(*event, err)
		}
		positions = append(positions, int64(event.Position))
		rejectedAts = append(rejectedAts, instant(event.RecordedAt))
		boundAts, expiresAts = append(boundAts, instant(body.BoundAt)), append(expiresAts, instant(body.ExpiresAt))
		jobIDs = append(jobIDs, id(event.JobID))
		digests = append(digests, string(event.KeyDigest()))
		scopes, previews = append(scopes, event.Scope), append(previews, event.KeyPreview)
		queues, types = append(queues, body.Queue), append(types, body.Type)
		modes, existingModes = append(modes, body.Mode), append(existingModes, body.ExistingMode)
		fields = append(fields, string(names))
		requestDigests = append(requestDigests, body.RequestDigest)
		existingRequests = append(existingRequests, body.ExistingRequestDigest)
	}
	_, err := tx.Exec(ctx, conflictFoldSQL, positions, rejectedAts, boundAts, expiresAts, jobIDs, digests, scopes,
		previews, queues, types, modes, existingModes, fields, requestDigests, existingRequests)
	return err
}
