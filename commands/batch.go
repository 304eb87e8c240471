package commands

import (
	"context"
	_ "embed" // the statement
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

//go:embed sql/enqueue_many.sql
var enqueueManySQL string

// outcomeWithdrawn is the answer to a request of a batch that was accepted and then undone with the batch.
const outcomeWithdrawn = "withdrawn"

// EnqueueMany asks for many jobs in one round trip, all or nothing, in a transaction of its own. Results are in the
// order of the requests. Of equal requests under one key inside the batch the first is accepted and the others are
// replayed with its job's ID.
//
// On any conflict nothing is enqueued, and the error is an [*EnqueueManyConflictError] that lists them all; each was
// appended to the ledger, but for those with a twin in the same batch, whose owner was withdrawn too. An invalid
// request is an [*InvalidRequestError] with its ordinal, and so are more than [MaxBatch] requests, with the field
// "requests". No requests are answered with nil and without SQL. Otherwise the error is a [*CallError].
func (q *Queue) EnqueueMany(ctx context.Context, requests []EnqueueOptions) ([]EnqueueResult, error) {
	if q.pool == nil {
		return nil, errNoPool
	}
	return q.decideMany(ctx, poolTx{q.pool}, true, true, requests)
}

// EnqueueManyTx is [Queue.EnqueueMany] in the caller's transaction, which stays usable after a conflict or an invalid
// request.
func (q *Queue) EnqueueManyTx(ctx context.Context, tx Tx, requests []EnqueueOptions) ([]EnqueueResult, error) {
	return q.decideMany(ctx, tx, false, true, requests)
}

// DecideMany is [Queue.EnqueueMany] item by item: a conflict is that item's outcome, and the others are enqueued.
func (q *Queue) DecideMany(ctx context.Context, requests []EnqueueOptions) ([]EnqueueResult, error) {
	if q.pool == nil {
		return nil, errNoPool
	}
	return q.decideMany(ctx, poolTx{q.pool}, true, false, requests)
}

// DecideManyTx is [Queue.DecideMany] in the caller's transaction, which stays usable after an invalid request.
func (q *Queue) DecideManyTx(ctx context.Context, tx Tx, requests []EnqueueOptions) ([]EnqueueResult, error) {
	return q.decideMany(ctx, tx, false, false, requests)
}

func (q *Queue) decideMany(ctx context.Context, tx Tx, own, allOrNothing bool, options []EnqueueOptions) (results []EnqueueResult, err error) {
	if len(options) == 0 {
		return nil, nil
	}
	if len(options) > MaxBatch {
		return nil, &InvalidRequestError{Field: "requests", Problem: fmt.Sprintf("are %d, at most %d are allowed", len(options), MaxBatch)}
	}
	requests := make([]*request, len(options))
	for i, o := range options {
		if requests[i], err = newRequest(i, o, q.keys, q.showPreviews, q.maxPayloadBytes); err != nil {
			return nil, err
		}
	}
	call := q.telemetry.begin(ctx, "enqueue_many")
	var told []decided
	defer func() { call.end(err, told...) }()

	var rows answers
	err = tx.QueryRow(call.ctx, enqueueManySQL, newColumns(requests, call.traceparent).arguments(allOrNothing, call.traceparent)...).
		Scan(&rows.jobIDs, &rows.outcomes, &rows.reasons, &rows.boundAts, &rows.expiresAts, &rows.details)
	if err != nil {
		return nil, newCallError("enqueue many", own, err)
	}
	results, conflicts, err := rows.results(requests, call.traceparent)
	if err != nil {
		return nil, err
	}
	if allOrNothing && len(conflicts) > 0 {
		for _, conflict := range conflicts {
			told = append(told, decided{requests[conflict.Ordinal], &results[conflict.Ordinal]})
		}
		return nil, &EnqueueManyConflictError{Conflicts: conflicts}
	}
	for i := range results {
		told = append(told, decided{requests[i], &results[i]})
	}
	return results, nil
}

// columns are the requests of a batch as PostgreSQL takes them: an array for each field.
type columns struct {
	types, payloads, queues, members, jobIDTails           []string
	priorities, attemptBudgets                             []int32
	concurrencyKeys, tags, retryKinds                      []*string
	retryInitials, retryMaxes, timeouts, windows, maxWaits []*int64
	runAts, deadlines                                      []pgtype.Timestamptz
	followUps                                              []*bool
	modes, scopes, keyPreviews, schedules                  []*string
	keyHashes, otherHashes, digests                        [][]byte
}

func newColumns(requests []*request, traceparent *string) *columns {
	return &columns{
		types:           column(requests, func(r *request) string { return r.typ }),
		payloads:        column(requests, func(r *request) string { return r.payload.text }),
		queues:          column(requests, func(r *request) string { return r.queue }),
		priorities:      column(requests, func(r *request) int32 { return r.priority }),
		concurrencyKeys: column(requests, func(r *request) *string { return r.concurrencyKey }),
		tags:            column(requests, func(r *request) *string { return arrayText(r.tags) }),
		attemptBudgets:  column(requests, func(r *request) int32 { return r.attemptBudget }),
		retryKinds:      column(requests, func(r *request) *string { return r.retryKind }),
		retryInitials:   column(requests, func(r *request) *int64 { return r.retryInitialMS }),
		retryMaxes:      column(requests, func(r *request) *int64 { return r.retryMaxMS }),
		runAts:          column(requests, func(r *request) pgtype.Timestamptz { return timestamptz(r.runAt) }),
		deadlines:       column(requests, func(r *request) pgtype.Timestamptz { return timestamptz(r.deadline) }),
		timeouts:        column(requests, func(r *request) *int64 { return r.executionTimeout }),
		modes:           column(requests, func(r *request) *string { return r.mode }),
		scopes:          column(requests, func(r *request) *string { return r.scope }),
		keyHashes:       column(requests, func(r *request) []byte { return r.keyHash }),
		otherHashes:     column(requests, func(r *request) []byte { return r.otherHashes }),
		keyPreviews:     column(requests, func(r *request) *string { return r.keyPreview }),
		windows:         column(requests, func(r *request) *int64 { return r.windowMS }),
		maxWaits:        column(requests, func(r *request) *int64 { return r.maxWaitMS }),
		schedules:       column(requests, func(r *request) *string { return r.schedule }),
		followUps:       column(requests, func(r *request) *bool { return r.followUp }),
		digests:         column(requests, func(r *request) []byte { return r.digest[:] }),
		members:         column(requests, func(r *request) string { return r.members(traceparent) }),
		jobIDTails:      column(requests, func(*request) string { return newJobIDTail() }),
	}
}

func column[T any](requests []*request, field func(*request) T) []T {
	values := make([]T, len(requests))
	for i, r := range requests {
		values[i] = field(r)
	}
	return values
}

func (c *columns) arguments(allOrNothing bool, traceparent *string) []any {
	return []any{
		allOrNothing, c.types, c.payloads, c.queues, c.priorities, c.concurrencyKeys, c.tags, c.attemptBudgets,
		c.retryKinds, c.retryInitials, c.retryMaxes, c.runAts, c.deadlines, c.timeouts, c.modes, c.scopes,
		c.keyHashes, c.otherHashes, c.keyPreviews, c.windows, c.maxWaits, c.schedules, c.followUps, c.digests,
		traceparent, c.members, c.jobIDTails,
	}
}

// arrayText is the text of a PostgreSQL array: PostgreSQL's arrays of arrays must all be of one length, so each set of
// tags travels as a text.
func arrayText(tags []string) *string {
	if tags == nil {
		return nil
	}
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	quoted := make([]string, len(tags))
	for i, tag := range tags {
		quoted[i] = `"` + escape.Replace(tag) + `"`
	}
	text := "{" + strings.Join(quoted, ",") + "}"
	return &text
}

func timestamptz(t *time.Time) pgtype.Timestamptz {
	if t == nil {
		return pgtype.Timestamptz{}
	}
	return pgtype.Timestamptz{Time: *t, Valid: true}
}

// answers are what PostgreSQL says about a batch, by ordinal.
type answers struct {
	jobIDs               []answerID
	outcomes             []string
	reasons, details     []answerText
	boundAts, expiresAts []answerTime
}

// results returns the answer to each request, and the conflicts among them. Where the batch was undone, a conflict with
// an earlier request of the same batch names that request: its job never was.
func (a *answers) results(requests []*request, traceparent *string) ([]EnqueueResult, []*EnqueueIdempotencyConflictError, error) {
	results := make([]EnqueueResult, len(requests))
	var conflicts []*EnqueueIdempotencyConflictError
	withdrawn := map[uuid.UUID]int{}
	if len(a.outcomes) != len(requests) {
		return nil, nil, fmt.Errorf("daybook: enqueue many: %d answers to %d requests", len(a.outcomes), len(requests))
	}
	for i, r := range requests {
		if a.outcomes[i] == outcomeInvalid {
			_, err := answer{outcome: outcomeInvalid, reason: a.reasons[i]}.result(i, r, traceparent)
			return nil, nil, err
		}
	}
	for i, r := range requests {
		if a.outcomes[i] == outcomeWithdrawn {
			withdrawn[a.jobIDs[i].UUID] = i
			continue
		}
		result, err := answer{a.jobIDs[i], a.outcomes[i], a.reasons[i], a.boundAts[i], a.expiresAts[i], a.details[i]}.result(i, r, traceparent)
		if err != nil {
			return nil, nil, err
		}
		if conflict := result.Conflict; conflict != nil {
			conflicts = append(conflicts, conflict)
		}
		results[i] = result
	}
	for _, conflict := range conflicts {
		if twin, ok := withdrawn[conflict.JobID]; ok {
			conflict.TwinOrdinal, conflict.JobID, conflict.State = twin, uuid.Nil, ""
			conflict.BoundAt, conflict.ExpiresAt = time.Time{}, time.Time{}
		}
	}
	return results, conflicts, nil
}
