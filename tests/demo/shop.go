package main

import (
	"context"
	_ "embed" // the shop's tables
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
)

//go:embed sql/shop.sql
var shopSchemaSQL string

// shop is an application in miniature: it takes orders and webhooks, and has tables of its own.
type shop struct {
	queue *commands.Queue
	keys  ledger.Keys
	url   string
	http  *http.Server
}

// answer is what the shop tells its clients, and the story its reader: never a key.
type answer struct {
	Outcome    commands.EnqueueOutcome `json:"outcome,omitempty"`
	JobID      uuid.UUID               `json:"job_id"`
	KeyDigest  ledger.KeyDigest        `json:"key_digest,omitempty"`
	KeyPreview string                  `json:"key_preview,omitempty"`
	Fields     []string                `json:"fields,omitempty"`
	Problem    string                  `json:"problem,omitempty"`
}

func openShop(ctx context.Context, queue *commands.Queue, keys ledger.Keys) (*shop, error) {
	s := &shop{queue: queue, keys: keys}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", s.placeOrder)
	mux.HandleFunc("POST /webhooks", s.receiveWebhook)
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s.http = &http.Server{Handler: mux}
	s.url = "http://" + listener.Addr().String()
	go func() { _ = s.http.Serve(listener) }() // until close
	return s, nil
}

func (s *shop) close(ctx context.Context) { _ = s.http.Shutdown(context.WithoutCancel(ctx)) }

type order struct {
	Number      string `json:"number"`
	Customer    string `json:"customer"`
	SKU         string `json:"sku"`
	AmountCents int    `json:"amount_cents"`
	Currency    string `json:"currency"`
}

// errOutOfStock is why an order's transaction is rolled back.
var errOutOfStock = errors.New("out of stock")

// placeOrder writes the order row and asks for its job in one transaction: either both are there afterwards or neither.
func (s *shop) placeOrder(w http.ResponseWriter, r *http.Request) {
	var o order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil {
		reply(w, http.StatusBadRequest, answer{Problem: "not an order"})
		return
	}
	key := ledger.NewKey(r.Header.Get("Idempotency-Key"))
	var result commands.EnqueueResult
	err := s.queue.InTx(r.Context(), func(tx pgx.Tx) (err error) {
		result, err = s.queue.EnqueueWithResultTx(r.Context(), tx, commands.EnqueueOptions{
			Type:    "order.fulfil",
			Queue:   "orders",
			Payload: map[string]any{"order": o.Number, "sku": o.SKU, "amount_cents": o.AmountCents, "currency": o.Currency},
			// The key of an order can be guessed from its number, hence HMAC: see openQueue.
			Idempotency: &commands.Idempotency{Key: key, Scope: "checkout"},
		})
		if err != nil || result.Outcome == commands.OutcomeReplayed {
			return err
		}
		_, err = tx.Exec(r.Context(),
			`insert into orders (number, customer, sku, amount_cents, currency, job_id) values ($1, $2, $3, $4, $5, $6)`,
			o.Number, o.Customer, o.SKU, o.AmountCents, o.Currency, result.JobID)
		if err != nil {
			return fmt.Errorf("write the order: %w", err)
		}
		_, err = tx.Exec(r.Context(), `update stock set available = available - 1 where sku = $1`, o.SKU)
		var pgErr *pgconn.PgError
		if errors.As(err, &pgErr) && pgErr.ConstraintName == "stock_not_negative" {
			return errOutOfStock
		}
		return err
	})
	s.reply(w, "checkout", key, result, err)
}

// webhook is as much of the provider's events as the shop reads.
type webhook struct {
	ID   string `json:"id"`
	Type string `json:"type"`
	Data struct {
		Object json.RawMessage `json:"object"`
	} `json:"data"`
}

// payment is what the objects of the three kinds of events have in common, under different names.
type payment struct {
	ID             string `json:"id"`
	AmountReceived int    `json:"amount_received"`
	AmountTotal    int    `json:"amount_total"`
	AmountRefunded int    `json:"amount_refunded"`
	Metadata       struct {
		OrderNumber string `json:"order_number"`
	} `json:"metadata"`
}

// receiveWebhook takes each event of the provider once, however often it is delivered: its id is the key.
func (s *shop) receiveWebhook(w http.ResponseWriter, r *http.Request) {
	var event webhook
	var p payment
	err := json.NewDecoder(r.Body).Decode(&event)
	if err == nil {
		err = json.Unmarshal(event.Data.Object, &p)
	}
	if err != nil {
		reply(w, http.StatusBadRequest, answer{Problem: "not an event"})
		return
	}
	key := ledger.NewKey(event.ID)
	var result commands.EnqueueResult
	err = s.queue.InTx(r.Context(), func(tx pgx.Tx) (err error) {
		result, err = s.queue.EnqueueWithResultTx(r.Context(), tx, commands.EnqueueOptions{
			Type:        event.Type,
			Queue:       "payments",
			Payload:     event.Data.Object,
			Idempotency: &commands.Idempotency{Key: key, Scope: "webhooks"},
		})
		if err != nil || result.Outcome == commands.OutcomeReplayed {
			return err
		}
		_, err = tx.Exec(r.Context(),
			`insert into payments (payment_id, order_number, type, amount_cents, job_id) values ($1, $2, $3, $4, $5)`,
			p.ID, p.Metadata.OrderNumber, event.Type, p.AmountReceived+p.AmountTotal-p.AmountRefunded, result.JobID)
		return err
	})
	s.reply(w, "webhooks", key, result, err)
}

// reply turns what became of a transaction into a response.
func (s *shop) reply(w http.ResponseWriter, scope string, key ledger.Key, result commands.EnqueueResult, err error) {
	hash, _ := s.keys.Hash(scope, key)
	a := answer{Outcome: result.Outcome, JobID: result.JobID, KeyDigest: hash.Digest(), KeyPreview: ledger.KeyPreview(key)}
	var conflict *commands.EnqueueIdempotencyConflictError
	var invalid *commands.InvalidRequestError
	switch {
	case err == nil && result.Outcome == commands.OutcomeReplayed:
		reply(w, http.StatusOK, a)
	case err == nil:
		reply(w, http.StatusCreated, a)
	case errors.As(err, &conflict):
		a.Fields = conflict.Fields
		reply(w, http.StatusConflict, a)
	case errors.As(err, &invalid):
		reply(w, http.StatusUnprocessableEntity, answer{Problem: invalid.Error()})
	case errors.Is(err, errOutOfStock):
		a.Problem = err.Error()
		reply(w, http.StatusUnprocessableEntity, a)
	default:
		reply(w, http.StatusInternalServerError, answer{Problem: err.Error()})
	}
}

func reply(w http.ResponseWriter, status int, a answer) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// A client that has gone away is the client's business: it will ask again.
	_ = json.NewEncoder(w).Encode(a)
}
