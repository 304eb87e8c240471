package commands

import (
	"context"
	_ "embed" // the statement
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/ledger"
)

//go:embed sql/record_rejection.sql
var recordRejectionSQL string

// rejection is all that it takes to append a refusal later. It holds no value of the request, and no key.
type rejection struct {
	keyHash     ledger.KeyHash
	jobID       uuid.UUID
	reason      string
	typ, queue  string
	mode        string
	fields      []string
	digest      RequestDigest
	traceparent *string
}

// InTx runs work in a transaction of the Queue's pool and commits it where work returns nil. Where work returns an
// error that holds a conflict, its transaction is rolled back like after any other error, but the conflict is
// appended to the ledger all the same, in a transaction of its own. InTx returns work's error; where the conflict
// could not be recorded, that error is joined to it.
func (q *Queue) InTx(ctx context.Context, work func(tx pgx.Tx) error) error {
	if q.pool == nil {
		return errNoPool
	}
	err := pgx.BeginFunc(ctx, q.pool, work)
	var conflict *EnqueueIdempotencyConflictError
	if !errors.As(err, &conflict) {
		return err
	}
	return errors.Join(err, q.RecordRejection(ctx, err))
}

// RecordRejection appends the conflicts in err to the ledger: for a caller whose transaction was rolled back, and the
// refusal with it. A conflict that is recorded already, or whose key has meanwhile another owner, is not appended
// again, nor is one with a twin of its own batch. An err without a conflict is ignored.
func (q *Queue) RecordRejection(ctx context.Context, err error) error {
	if q.pool == nil {
		return errNoPool
	}
	for _, conflict := range conflictsIn(err) {
		if conflict.TwinOrdinal >= 0 {
			continue
		}
		r := conflict.rejection
		var appended bool
		err := poolTx{q.pool}.QueryRow(ctx, recordRejectionSQL,
			r.keyHash[:], r.jobID, r.reason, r.typ, r.queue, r.mode, r.fields, r.digest[:], r.traceparent,
		).Scan(&appended)
		if err != nil {
			return newCallError("record rejection", true, err)
		}
	}
	return nil
}

func conflictsIn(err error) []*EnqueueIdempotencyConflictError {
	var many *EnqueueManyConflictError
	if errors.As(err, &many) {
		return many.Conflicts
	}
	var one *EnqueueIdempotencyConflictError
	if errors.As(err, &one) {
		return []*EnqueueIdempotencyConflictError{one}
	}
	return nil
}
