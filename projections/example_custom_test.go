package projections_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/projections"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// ordersTable is what a migration of the shop runs in its schema, and a rebuild in its own.
const ordersTable = `
create table orders_awaiting_payment (
    job_id      uuid        not null,
    key_digest  text        not null, -- tells the order's key from any other, and is not the key
    key_preview text,                 -- null where the job was redriven: that event has no preview
    since       timestamptz not null,
    attempts    integer     not null default 0,
    constraint orders_awaiting_payment_pkey primary key (job_id)
);
create index orders_awaiting_payment_since on orders_awaiting_payment (since);`

// ordersAwaitingPayment has a row for each order whose charge was accepted, or redriven, and is not finished.
func ordersAwaitingPayment() projections.Projection {
	return projections.Projection{
		Name:    "orders_awaiting_payment",
		Version: 1,
		Schema:  "shop",
		Tables:  []string{"orders_awaiting_payment"},
		DDL:     ordersTable,
		Kinds: []ledger.Kind{
			ledger.KindAccepted, ledger.KindJobRedriven, ledger.KindJobStarted,
			ledger.KindJobSucceeded, ledger.KindJobFailed, ledger.KindJobCancelled, ledger.KindJobPurged,
		},
		Slicing: projections.SliceByJob,
		Fold:    foldOrders,
	}
}

func foldOrders(ctx context.Context, tx pgx.Tx, events []ledger.Event) error {
	batch := &pgx.Batch{} // one round trip
	for _, event := range events {
		var body struct{ Type string }
		if err := json.Unmarshal(event.Body, &body); err != nil {
			return projections.BadEvent(event, err)
		}
		switch {
		case body.Type != "order.charge":
		// A job that has failed for good and is redriven goes on as another job, of the same key.
		case event.Kind == ledger.KindAccepted, event.Kind == ledger.KindJobRedriven:
			batch.Queue(`insert into orders_awaiting_payment (job_id, key_digest, key_preview, since) values ($1, $2, nullif($3, ''), $4)`,
				event.JobID, event.KeyDigest(), event.KeyPreview, event.RecordedAt)
		case event.Kind == ledger.KindJobStarted:
			batch.Queue(`update orders_awaiting_payment set attempts = attempts + 1 where job_id = $1`, event.JobID)
		default:
			batch.Queue(`delete from orders_awaiting_payment where job_id = $1`, event.JobID)
		}
	}
	return tx.SendBatch(ctx, batch).Close()
}

// An application's own projection, in its own schema.
func Example_custom() {
	ctx := context.Background()
	db, err := pgtest.Open(ctx) // a PostgreSQL with Daybook's migrations
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close(ctx)

	// In a migration of the application: the table, and the two schemas that a rebuild needs.
	_, err = db.Pool.Exec(ctx, `
		create schema shop;
		create schema shop_rebuild;
		create schema shop_old;
		set search_path = shop;`+ordersTable+`reset search_path`)
	if err != nil {
		log.Fatal(err)
	}
	chargeOrders(ctx, db)

	view := ordersAwaitingPayment()
	runner, err := projections.NewRunner(view, projections.RunnerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := runner.CatchUp(ctx, db.Pool, 0); err != nil {
		log.Fatal(err)
	}
	var orders, attempts int
	var digest, preview string
	err = db.Pool.QueryRow(ctx, `
		select count(*) over (), key_digest, key_preview, attempts
		from shop.orders_awaiting_payment
		order by since
		limit 1`).Scan(&orders, &digest, &preview, &attempts)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(orders, "orders await payment; for the longest time:", digest, preview, "attempts", attempts)

	// It is rebuilt and verified like the views that Daybook brings along.
	rebuilt, err := projections.Rebuild(ctx, db.Pool, view, projections.RebuildConfig{})
	if err != nil {
		log.Fatal(err)
	}
	report, err := projections.Verify(ctx, db.Pool, view)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("rebuilt up to position", rebuilt.Position, "- verified:", report.OK)
	// Output:
	// 2 orders await payment; for the longest time: be510d0ade9f order… attempts 0
	// rebuilt up to position 8 - verified: true
}

// chargeOrders accepts three charges; one succeeds, one fails for good and is redriven, and one is not begun yet.
func chargeOrders(ctx context.Context, db *pgtest.DB) {
	queue, err := commands.NewQueue(commands.Config{Pool: db.Pool})
	if err != nil {
		log.Fatal(err)
	}
	for _, order := range []string{"order-2026-0001", "order-2026-0002", "order-2026-0003"} {
		_, err := queue.Enqueue(ctx, commands.EnqueueOptions{
			Type: "order.charge", AttemptBudget: 1, Idempotency: &commands.Idempotency{Key: ledger.NewKey(order)},
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	claimed, err := queue.ClaimJobs(ctx, commands.ClaimOptions{Worker: "cashier", Limit: 2})
	if err != nil || len(claimed) != 2 {
		log.Fatal(len(claimed), err)
	}
	if _, err := queue.CompleteJobs(ctx, claimed[0].Claim); err != nil {
		log.Fatal(err)
	}
	if _, err := queue.FailJob(ctx, claimed[1].Claim, "card declined"); err != nil {
		log.Fatal(err)
	}
	why := commands.Act{Actor: "cashier@example.com", Reason: "the customer gave another card"}
	if _, _, err := queue.RedriveJob(ctx, claimed[1].Claim.JobID, why, "redrive-2026-0002"); err != nil {
		log.Fatal(err)
	}
}
