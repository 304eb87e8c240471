package projections

import (
	"bytes"
	"context"
	_ "embed" // the statement
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/ledger"
)

//go:embed sql/job_fold.sql
var jobFoldSQL string

// ViewJob is view_job: where each job is, and when it came there. That a job's time has come is no event, so a job that
// waits for its time and one that waits for a worker have the same state there; [Jobs] tells them apart by the clock.
func ViewJob() Projection {
	return Projection{
		Name:    "view_job",
		Version: 1,
		Tables:  []string{"view_job"},
		Kinds: []ledger.Kind{
			ledger.KindAccepted, ledger.KindReplaced, ledger.KindJobStarted, ledger.KindJobSucceeded,
			ledger.KindJobAttemptFailed, ledger.KindJobFailed, ledger.KindJobLeaseExpired, ledger.KindJobCancelled,
			ledger.KindJobPurged, ledger.KindJobReleased, ledger.KindJobRedriven,
		},
		Slicing: SliceByJob,
		Fold:    foldJobs,
	}
}

// jobChange is what one batch does to one row of view_job. Empty and zero mean: as it was.
type jobChange struct {
	sourceJobID                       uuid.UUID
	acceptedAt, startedAt, finishedAt time.Time
	nextRunAt                         time.Time // zero: it does not wait
	state, queue, typ                 string
	digest, scope, preview            string
	attempt, attemptBudget            int16
	first, last                       ledger.Position
}

func foldJobs(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
	changes, bodies := make(map[uuid.UUID]*jobChange, len(events)), newBodies()
	for i := range events {
		event := &events[i]
		change, ok := changes[event.JobID]
		if !ok {
			change = &jobChange{first: event.Position}
			changes[event.JobID] = change
		}
		if err := change.add(event, bodies); err != nil {
			return err
		}
	}
	return writeJobs(ctx, tx, changes)
}

// add is the fold of one event.
func (c *jobChange) add(event *ledger.Event, bodies *bodies) error {
	var body jobBody
	if err := bodies.read(event, &body, &body.decisionBody); err != nil {
		return err
	}
	if body.Attempt < 0 || body.Attempt > math.MaxInt16 || body.AttemptBudget < 0 || body.AttemptBudget > math.MaxInt16 {
		return BadEvent(*event, errors.New("its numbers of attempts are out of bounds"))
	}
	c.last, c.queue, c.typ = event.Position, body.Queue, body.Type
	c.attempt, c.attemptBudget = int16(body.Attempt), int16(body.AttemptBudget) //nolint:gosec // bounded above
	at := event.RecordedAt
	switch event.Kind {
	case ledger.KindAccepted:
		c.acceptedAt = at
		c.wait(body.RunAt)
		if event.KeyHash != nil {
			c.digest, c.scope, c.preview = string(event.KeyDigest()), event.Scope, event.KeyPreview
		}
	case ledger.KindJobRedriven:
		// The event carries the key of the job it was made from; the new job has none.
		c.acceptedAt, c.sourceJobID = at, body.SourceJobID
		c.wait(at)
	case ledger.KindReplaced, ledger.KindJobAttemptFailed:
		c.wait(body.RunAt)
	case ledger.KindJobLeaseExpired, ledger.KindJobReleased:
		c.wait(at)
	case ledger.KindJobStarted:
		c.state, c.startedAt, c.nextRunAt = "active", at, time.Time{}
	case ledger.KindJobSucceeded:
		c.finish("succeeded", at)
	case ledger.KindJobFailed:
		c.finish("failed", at)
	case ledger.KindJobCancelled:
		c.finish("cancelled", at)
	case ledger.KindJobPurged:
		c.finish("purged", at)
	}
	return nil
}

func (c *jobChange) wait(until time.Time) { c.state, c.nextRunAt = "waiting", until }

func (c *jobChange) finish(state string, at time.Time) {
	c.state, c.finishedAt, c.nextRunAt = state, at, time.Time{}
}

func writeJobs(ctx context.Context, tx pgx.Tx, changes map[uuid.UUID]*jobChange) error {
	// In the order of the primary key, which is nearly that in which the jobs were accepted.
	all := slices.AppendSeq(make([]uuid.UUID, 0, len(changes)), maps.Keys(changes))
	slices.SortFunc(all, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	for ids := range slices.Chunk(all, statementRows) {
		if err := writeSomeJobs(ctx, tx, changes, ids); err != nil {
			return err
		}
	}
	return nil
}

func writeSomeJobs(ctx context.Context, tx pgx.Tx, changes map[uuid.UUID]*jobChange, ids []uuid.UUID) error {
	n := len(ids)
	var (
		jobIDs, sources             = make(uuids, n), make(uuids, n)
		accepteds, starteds         = make(instants, n), make(instants, n)
		finisheds, nexts            = make(instants, n), make(instants, n)
		firsts, lasts               = make([]int64, n), make([]int64, n)
		attempts, budgets           = make([]int16, n), make([]int16, n)
		states, queues, types       = make([]string, n), make([]string, n), make([]string, n)
		keyDigests, scopes, preview = make(texts, n), make(texts, n), make(texts, n)
	)
	for i := range ids {
		c := changes[ids[i]]
		jobIDs[i], sources[i] = id(ids[i]), idOrNull(c.sourceJobID)
		accepteds[i], starteds[i] = instant(c.acceptedAt), instant(c.startedAt)
		finisheds[i], nexts[i] = instant(c.finishedAt), instant(c.nextRunAt)
		firsts[i], lasts[i] = int64(c.first), int64(c.last)
		attempts[i], budgets[i] = c.attempt, c.attemptBudget
		states[i], queues[i], types[i] = c.state, c.queue, c.typ
		keyDigests[i], scopes[i], preview[i] = text(c.digest), text(c.scope), text(c.preview)
	}
	_, err := tx.Exec(ctx, jobFoldSQL, jobIDs, sources, accepteds, starteds, finisheds, nexts, firsts, lasts, attempts,
		budgets, states, queues, types, keyDigests, scopes, preview)
	return err
}
