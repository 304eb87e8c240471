package commands

import (
	"context"
	_ "embed" // the statement
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/daybook-go/daybook/ledger"
)

//go:embed sql/enqueue.sql
var enqueueSQL string

// Enqueue asks for work and returns the job's ID: of a new job, or of the one that was accepted for the same request
// under the same key. It runs in a transaction of its own.
//
// It returns an [*InvalidRequestError] for a request out of bounds, an [*EnqueueIdempotencyConflictError] where the
// key is bound to other work, and a [*CallError] where the call did not get its answer.
func (q *Queue) Enqueue(ctx context.Context, options EnqueueOptions) (uuid.UUID, error) {
	result, err := q.EnqueueWithResult(ctx, options)
	return result.JobID, err
}

// EnqueueTx is [Queue.Enqueue] in the caller's transaction: the job commits or vanishes with it. After an
// *InvalidRequestError or a conflict the transaction stays usable; a conflict is appended in it.
func (q *Queue) EnqueueTx(ctx context.Context, tx Tx, options EnqueueOptions) (uuid.UUID, error) {
	result, err := q.EnqueueWithResultTx(ctx, tx, options)
	return result.JobID, err
}

// EnqueueWithResult is [Queue.Enqueue] with all that PostgreSQL said. On a conflict the result is filled in too.
func (q *Queue) EnqueueWithResult(ctx context.Context, options EnqueueOptions) (EnqueueResult, error) {
	return conflictAsError(q.Decide(ctx, options))
}

// EnqueueWithResultTx is [Queue.EnqueueWithResult] in the caller's transaction.
func (q *Queue) EnqueueWithResultTx(ctx context.Context, tx Tx, options EnqueueOptions) (EnqueueResult, error) {
	return conflictAsError(q.DecideTx(ctx, tx, options))
}

// Decide is [Queue.EnqueueWithResult] for callers who will commit anyway: a conflict is an outcome and not an error.
func (q *Queue) Decide(ctx context.Context, options EnqueueOptions) (EnqueueResult, error) {
	if q.pool == nil {
		return EnqueueResult{}, errNoPool
	}
	return q.decide(ctx, poolTx{q.pool}, true, options)
}

// DecideTx is [Queue.Decide] in the caller's transaction.
func (q *Queue) DecideTx(ctx context.Context, tx Tx, options EnqueueOptions) (EnqueueResult, error) {
	return q.decide(ctx, tx, false, options)
}

func conflictAsError(result EnqueueResult, err error) (EnqueueResult, error) {
	if err == nil && result.Conflict != nil {
		err = result.Conflict
	}
	return result, err
}

func (q *Queue) decide(ctx context.Context, tx Tx, own bool, options EnqueueOptions) (result EnqueueResult, err error) {
	r, err := newRequest(0, options, q.keys, q.showPreviews, q.maxPayloadBytes)
	if err != nil {
		return EnqueueResult{}, err
	}
	call := q.telemetry.begin(ctx, "enqueue")
	defer func() { call.end(err, decided{r, &result}) }()

	var row answer
	err = tx.QueryRow(call.ctx, enqueueSQL,
		r.typ, r.payload.text, r.queue, r.priority, r.concurrencyKey, r.tags, r.attemptBudget,
		r.retryKind, r.retryInitialMS, r.retryMaxMS, r.runAt, r.deadline, r.executionTimeout,
		r.mode, r.scope, r.keyHash, r.otherHashes, r.keyPreview, r.windowMS, r.maxWaitMS, r.schedule, r.followUp,
		r.digest[:], call.traceparent, r.members(call.traceparent), newJobIDTail(),
	).Scan(&row.jobID, &row.outcome, &row.reason, &row.boundAt, &row.expiresAt, &row.detail)
	if err != nil {
		return EnqueueResult{}, newCallError("enqueue", own, err)
	}
	return row.result(0, r, call.traceparent)
}

// answer is what PostgreSQL says about one request.
type answer struct {
	jobID              answerID
	outcome            string
	reason             answerText
	boundAt, expiresAt answerTime
	detail             answerText
}

// outcomeInvalid is the answer to a request that turned out to be out of bounds in PostgreSQL: a deadline that its
// clock has passed. Callers meet it as an *InvalidRequestError.
const outcomeInvalid = "invalid"

func (a answer) result(ordinal int, r *request, traceparent *string) (EnqueueResult, error) {
	if a.outcome == outcomeInvalid {
		problem := "is refused by the database"
		if a.reason.String == "deadline" {
			problem = "has passed already, by the database's clock"
		}
		return EnqueueResult{}, &InvalidRequestError{Ordinal: ordinal, Field: a.reason.String, Problem: problem}
	}
	if !a.jobID.Valid || !a.boundAt.Valid {
		return EnqueueResult{}, errors.New("daybook: enqueue: the database's answer has no job; is its schema older than this build?")
	}
	result := EnqueueResult{JobID: a.jobID.UUID, Outcome: EnqueueOutcome(a.outcome), Reason: a.reason.String, BoundAt: a.boundAt.Time.UTC()}
	if a.expiresAt.Valid {
		result.ExpiresAt = a.expiresAt.Time.UTC()
	}
	if result.Outcome != OutcomeConflictRejected {
		return result, nil
	}
	conflict, err := a.conflict(ordinal, r, traceparent)
	if err != nil {
		return EnqueueResult{}, fmt.Errorf("daybook: enqueue: read the conflict: %w", err)
	}
	conflict.BoundAt, conflict.ExpiresAt = result.BoundAt, result.ExpiresAt
	result.Conflict = conflict
	return result, nil
}

func (a answer) conflict(ordinal int, r *request, traceparent *string) (*EnqueueIdempotencyConflictError, error) {
	var detail struct {
		KeyHash       string   `json:"key_hash"`
		KeyPreview    string   `json:"key_preview"`
		Mode          Mode     `json:"mode"`
		State         JobState `json:"state"`
		Fields        []string `json:"fields"`
		RequestDigest string   `json:"request_digest"`
	}
	if !a.detail.Valid {
		return nil, errors.New("it is not there")
	}
	if err := json.Unmarshal([]byte(a.detail.String), &detail); err != nil {
		return nil, err
	}
	var keyHash ledger.KeyHash
	var existing RequestDigest
	if _, err := hex.Decode(keyHash[:], []byte(detail.KeyHash)); err != nil {
		return nil, err
	}
	if n, err := hex.Decode(existing[:], []byte(detail.RequestDigest)); err != nil || n != len(existing) {
		return nil, fmt.Errorf("a request digest of %d bytes (%w)", n, err)
	}
	return &EnqueueIdempotencyConflictError{
		Ordinal:               ordinal,
		Scope:                 *r.scope,
		KeyPreview:            detail.KeyPreview,
		KeyDigest:             keyHash.Digest(),
		Mode:                  detail.Mode,
		JobID:                 a.jobID.UUID,
		State:                 detail.State,
		TwinOrdinal:           -1,
		Fields:                detail.Fields,
		RequestDigest:         r.digest,
		ExistingRequestDigest: existing,
		rejection: rejection{
			keyHash: keyHash, jobID: a.jobID.UUID, reason: "conflict", typ: r.typ, queue: r.queue, mode: *r.mode,
			fields: detail.Fields, digest: r.digest, traceparent: traceparent,
		},
	}, nil
}
