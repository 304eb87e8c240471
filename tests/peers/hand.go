package main

import (
	"context"
	"crypto/sha256"
	_ "embed" // the statements
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
)

var (
	//go:embed sql/hand_tables.sql
	handTablesSQL string
	//go:embed sql/hand_insert.sql
	handInsertSQL string
	//go:embed sql/hand_insert_many.sql
	handInsertManySQL string
	//go:embed sql/lookup.sql
	lookupSQL string
)

// handPeer writes the rows that Daybook writes, and decides nothing: the client makes everything up, the event's body
// too, and the statement is nothing but INSERTs. It is a bound on what any decision can reach, not an alternative.
type handPeer struct{ pool *pgxpool.Pool }

func makeHandTables(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, handTablesSQL)
	return err
}

// handRow is what the three rows of an order hold.
type handRow struct {
	keyHash, requestDigest []byte
	jobID                  uuid.UUID
	keyPreview             string
	payload, body          []byte
}

// instantLayout is how Daybook renders instants in event bodies.
const instantLayout = "2006-01-02T15:04:05.000000Z"

// acceptedBody is the body that Daybook's enqueue.accepted has for such a request.
type acceptedBody struct {
	V             int       `json:"v"`
	JobID         uuid.UUID `json:"job_id"`
	Type          string    `json:"type"`
	Queue         string    `json:"queue"`
	Priority      int       `json:"priority"`
	AttemptBudget int       `json:"attempt_budget"`
	PayloadBytes  int       `json:"payload_bytes"`
	RequestDigest string    `json:"request_digest"`
	RunAt         string    `json:"run_at"`
	Mode          string    `json:"mode"`
	Scope         string    `json:"scope"`
	KeyDigest     string    `json:"key_digest"`
	KeyPreview    string    `json:"key_preview"`
	WindowMS      int64     `json:"window_ms"`
	ExpiresAt     string    `json:"expires_at"`
}

func newHandRow(o order, now time.Time) (handRow, error) {
	payload, err := json.Marshal(o)
	if err != nil {
		return handRow{}, err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return handRow{}, err
	}
	sum := sha256.Sum256(payload)
	r := handRow{
		keyHash: o.hash(), requestDigest: append([]byte{1}, sum[:]...), jobID: id, keyPreview: ledger.KeyPreview(o.key()),
		payload: payload,
	}
	r.body, err = json.Marshal(acceptedBody{
		V: 1, JobID: id, Type: jobType, Queue: commands.DefaultQueue, AttemptBudget: commands.DefaultAttemptBudget,
		PayloadBytes: len(payload), RequestDigest: hex.EncodeToString(r.requestDigest), RunAt: now.Format(instantLayout),
		Mode: string(commands.ModeIdempotency), Scope: commands.DefaultScope, KeyDigest: hex.EncodeToString(r.keyHash[:6]),
		KeyPreview: r.keyPreview, WindowMS: commands.DefaultTTL.Milliseconds(),
		ExpiresAt: now.Add(commands.DefaultTTL).Format(instantLayout),
	})
	return r, err
}

func (h handPeer) insert(ctx context.Context, o order) error {
	now := time.Now().UTC()
	r, err := newHandRow(o, now)
	if err != nil {
		return err
	}
	tag, err := h.pool.Exec(ctx, handInsertSQL,
		r.keyHash, r.jobID, now, now.Add(commands.DefaultTTL), commands.DefaultTTL.Milliseconds(), commands.DefaultScope,
		r.keyPreview, r.requestDigest, 0, commands.DefaultAttemptBudget, commands.DefaultQueue, jobType, r.payload, r.body,
	)
	return wantRows(tag.RowsAffected(), 1, err)
}

func (h handPeer) insertMany(ctx context.Context, all []order) error {
	now := time.Now().UTC()
	var (
		hashes, digests [][]byte
		ids             []uuid.UUID
		previews        []string
		payloads        []json.RawMessage
		bodies          []json.RawMessage
	)
	for _, o := range all {
		r, err := newHandRow(o, now)
		if err != nil {
			return err
		}
		hashes, digests, ids = append(hashes, r.keyHash), append(digests, r.requestDigest), append(ids, r.jobID)
		previews, payloads, bodies = append(previews, r.keyPreview), append(payloads, r.payload), append(bodies, r.body)
	}
	tag, err := h.pool.Exec(ctx, handInsertManySQL,
		hashes, ids, previews, digests, payloads, bodies, now, now.Add(commands.DefaultTTL),
		commands.DefaultTTL.Milliseconds(), commands.DefaultScope, 0, commands.DefaultAttemptBudget, commands.DefaultQueue,
		jobType,
	)
	return wantRows(tag.RowsAffected(), int64(len(all)), err)
}

func wantRows(got, want int64, err error) error {
	if err == nil && got != want {
		err = fmt.Errorf("the hand-written SQL wrote %d events, not %d", got, want)
	}
	return err
}

// lookup asks what a key stands for, by its hash.
func (h handPeer) lookup(ctx context.Context, hash []byte) error {
	var (
		id               uuid.UUID
		bound, expiresAt time.Time
	)
	return h.pool.QueryRow(ctx, lookupSQL, hash).Scan(&id, &bound, &expiresAt)
}

var errNotOne = errors.New("select 1 is not 1")

// selectOne is a round trip, and nothing else.
func (h handPeer) selectOne(ctx context.Context) error {
	var one int
	err := h.pool.QueryRow(ctx, "select 1").Scan(&one)
	if err == nil && one != 1 {
		err = errNotOne
	}
	return err
}
