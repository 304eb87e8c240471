package projections

import (
	"context"
	_ "embed" // the statements
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/daybook-go/daybook/ledger"
)

var (
	//go:embed sql/jobs_by_id.sql
	jobsByIDSQL string
	//go:embed sql/jobs_by_digest.sql
	jobsByDigestSQL string
	//go:embed sql/jobs_by_state.sql
	jobsByStateSQL string
	//go:embed sql/jobs_by_queue.sql
	jobsByQueueSQL string
	//go:embed sql/jobs_newest.sql
	jobsNewestSQL string
)

// JobView is where one job is.
type JobView struct {
	JobID uuid.UUID `json:"job_id"`
	// State is scheduled, ready, active, succeeded, failed, cancelled or purged. The first two tell whether NextRunAt has
	// come by the ledger's clock; a debounced follow-up that is ready may still wait for its predecessor.
	State string `json:"state"`
	// Attempt is how many attempts have begun, AttemptBudget how many there may be.
	Attempt       int    `json:"attempt"`
	AttemptBudget int    `json:"attempt_budget"`
	Queue         string `json:"queue"`
	Type          string `json:"type"`
	// KeyDigest, KeyPreview and Scope are those of the key it was accepted under; "" where it had none.
	KeyDigest  ledger.KeyDigest `json:"key_digest,omitempty"`
	KeyPreview string           `json:"key_preview,omitempty"`
	Scope      string           `json:"scope,omitempty"`
	// SourceJobID is the failed job that this one was made from; nil where it was not.
	SourceJobID *uuid.UUID `json:"source_job_id,omitempty"`
	// AcceptedAt is when it was accepted or redriven, StartedAt when its last attempt began, FinishedAt when it
	// succeeded, failed for good, was cancelled or purged, NextRunAt when it may run, where it waits; all in UTC, nil where
	// that is not so.
	AcceptedAt *time.Time `json:"accepted_at,omitempty"`
	StartedAt  *time.Time `json:"started_at,omitempty"`
	FinishedAt *time.Time `json:"finished_at,omitempty"`
	NextRunAt  *time.Time `json:"next_run_at,omitempty"`
	// FirstPosition and LastPosition are those of the first and the last event that changed it.
	FirstPosition ledger.Position `json:"first_position"`
	LastPosition  ledger.Position `json:"last_position"`
}

// JobFilter narrows [Jobs]. The zero value is the newest [DefaultLimit] jobs.
type JobFilter struct {
	// JobID, where it is not zero: that job, whatever else is here.
	JobID uuid.UUID
	// KeyDigest is the beginning of a key digest: 1 to 12 lower-case hex digits. "" is any.
	KeyDigest string
	// State is one of those of [JobView]; "" is any.
	State string
	// Queue and Type, where they are not "".
	Queue, Type string
	// Before leaves out jobs whose first event is not before this position; 0 leaves out none. To read on, pass the
	// FirstPosition of the last row.
	Before ledger.Position
	// Limit is the most rows: 1 to [MaxLimit], default [DefaultLimit].
	Limit int
}

// JobStates returns the states that a [JobView] can have.
func JobStates() []string {
	return []string{"scheduled", "ready", "active", "succeeded", "failed", "cancelled", "purged"}
}

// stored returns the state as view_job has it, and where that does not tell it, whether the job's time has come.
func (f JobFilter) stored() (state pgtype.Text, due pgtype.Bool, err error) {
	if f.State != "" && !slices.Contains(JobStates(), f.State) {
		return state, due, fmt.Errorf("state is not one of %s", strings.Join(JobStates(), ", "))
	}
	if f.State == "scheduled" || f.State == "ready" {
		return text("waiting"), pgtype.Bool{Bool: f.State == "ready", Valid: true}, nil
	}
	return text(f.State), due, nil
}

// Jobs returns rows of view_job, the newest jobs first, by their first event. They are as fresh as the projection, and
// those of jobs that are pruned or purged stay. Members of daybook_operator may call it.
func Jobs(ctx context.Context, db ledger.Querier, filter JobFilter) ([]JobView, error) {
	fail := func(err error) ([]JobView, error) { return nil, fmt.Errorf("daybook: read jobs: %w", err) }
	limit, err := limitOf(filter.Limit)
	if err != nil {
		return fail(err)
	}
	if err := checkDigest(filter.KeyDigest); err != nil {
		return fail(err)
	}
	state, due, err := filter.stored()
	if err != nil {
		return fail(err)
	}
	before := int64(filter.Before)
	if before <= 0 {
		before = math.MaxInt64
	}
	queue, typ := text(filter.Queue), text(filter.Type)
	var rows pgx.Rows
	switch {
	case filter.JobID != uuid.Nil:
		rows, err = db.Query(ctx, jobsByIDSQL, id(filter.JobID))
	case filter.KeyDigest != "":
		rows, err = db.Query(ctx, jobsByDigestSQL, before, limit, typ, queue, state, due, filter.KeyDigest)
	case filter.State != "":
		rows, err = db.Query(ctx, jobsByStateSQL, before, limit, typ, queue, state, due)
	case filter.Queue != "":
		rows, err = db.Query(ctx, jobsByQueueSQL, before, limit, typ, queue)
	default:
		rows, err = db.Query(ctx, jobsNewestSQL, before, limit, typ)
	}
	if err != nil {
		return fail(err)
	}
	jobs, err := pgx.CollectRows(rows, scanJob)
	if err != nil {
		return fail(err)
	}
	return jobs, nil
}

func scanJob(row pgx.CollectableRow) (JobView, error) {
	var (
		j                      JobView
		digest, preview, scope *string
	)
	err := row.Scan(&j.JobID, &j.State, &j.Attempt, &j.AttemptBudget, &j.Queue, &j.Type, &digest, &preview, &scope,
		&j.SourceJobID, &j.AcceptedAt, &j.StartedAt, &j.FinishedAt, &j.NextRunAt, &j.FirstPosition, &j.LastPosition)
	if err != nil {
		return j, err
	}
	j.KeyDigest, j.KeyPreview, j.Scope = ledger.KeyDigest(deref(digest)), deref(preview), deref(scope)
	for _, at := range []*time.Time{j.AcceptedAt, j.StartedAt, j.FinishedAt, j.NextRunAt} {
		if at != nil {
			*at = at.UTC()
		}
	}
	return j, nil
}
