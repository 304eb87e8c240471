package relay_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// The view has the columns of Debezium's outbox event router, one row for each position, and ids that stay.
func TestDebeziumOutbox(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	enqueue(t, db, "an order for the connector", "an order for the connector", "another order of it")
	appendEvents(t, db, 1, 0)
	if _, err := ledger.Sequence(t.Context(), db.Pool); err != nil {
		t.Fatal(err)
	}
	events, _, err := ledger.Read(t.Context(), db.Pool, 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		ID                       uuid.UUID
		AggregateType, Aggregate string
		Type                     string
		Payload                  []byte
		Position                 ledger.Position
	}
	relay := db.AsRole(t, "daybook_relay")
	read := func() []row {
		rows, err := relay.Query(t.Context(), `
			select id, aggregatetype, aggregateid, type, payload, position
			from daybook.debezium_outbox where position > 0 order by position`)
		if err != nil {
			t.Fatal(err)
		}
		all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[row])
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	got := read()
	if len(got) != len(events) || len(got) != 4 {
		t.Fatalf("%d rows for %d events", len(got), len(events))
	}
	ids := map[uuid.UUID]bool{}
	for i, r := range got {
		event := events[i]
		ids[r.ID] = true
		if r.ID.Version() != 3 || r.ID.Variant() != uuid.RFC4122 {
			t.Errorf("id %s has version %d, variant %s", r.ID, r.ID.Version(), r.ID.Variant())
		}
		aggregate := string(event.KeyDigest())
		if aggregate == "" {
			aggregate = event.JobID.String()
		}
		want := row{ID: r.ID, AggregateType: "enqueue", Aggregate: aggregate, Type: string(event.Kind), Payload: event.Body, Position: event.Position}
		if diff := cmp.Diff(want, r); diff != "" {
			t.Errorf("row %d (-want +got):\n%s", i, diff)
		}
		if !json.Valid(r.Payload) {
			t.Errorf("payload %s", r.Payload)
		}
	}
	if len(ids) != 4 {
		t.Errorf("%d different ids of 4 events", len(ids))
	}
	if diff := cmp.Diff(got, read()); diff != "" {
		t.Errorf("read again:\n%s", diff)
	}
}
