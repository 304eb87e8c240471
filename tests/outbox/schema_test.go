package outbox_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.opentelemetry.io/otel/trace"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/tests/pgtest"
)

var update = flag.Bool("update", false, "write the golden files in testdata anew")

// TestBodies makes one event of each sort and compares its body with the golden file of that name, and with its schema.
func TestBodies(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	at := time.Date(2026, 3, 1, 12, 0, 0, 250_000, time.UTC)
	db.FreezeClock(t, at)
	queue := newQueue(t, db)
	ctx := trace.ContextWithRemoteSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{0: 0x0a, 15: 0x9c}, SpanID: trace.SpanID{0: 0xb7, 7: 0x31}, TraceFlags: trace.FlagsSampled,
	}))
	key := ledger.NewKey("order-2026-000041")
	full := commands.EnqueueOptions{
		Type:             `invoice "create"`,
		Payload:          map[string]int{"amount": 1250},
		Queue:            "billing",
		Priority:         7,
		ConcurrencyKey:   "customer-19",
		Tags:             []string{"vip", "eu", "vip"},
		AttemptBudget:    3,
		RetryPolicy:      commands.ExponentialRetry{Initial: time.Second, Max: time.Minute},
		RunAt:            at.Add(time.Hour),
		Deadline:         at.Add(2 * time.Hour),
		ExecutionTimeout: 90 * time.Second,
		Idempotency:      &commands.Idempotency{Key: key, Scope: "orders", TTL: time.Hour},
	}
	other := commands.EnqueueOptions{Type: "invoice.cancel", Idempotency: full.Idempotency}

	decide := func(options commands.EnqueueOptions) {
		t.Helper()
		if _, err := queue.Decide(ctx, options); err != nil {
			t.Fatal(err)
		}
	}
	enqueue(t, db, 1)
	decide(full)
	decide(other)
	// The key is free again, which the next request finds out.
	db.AdvanceClock(t, time.Hour)
	decide(other)

	messages := subscribe(t, newSubscriber(t, outbox.Config{Pool: db.Pool}), outbox.TopicAll)
	want := []struct {
		kind   ledger.Kind
		golden string
	}{
		{ledger.KindAccepted, "enqueue.accepted.least.json"},
		{ledger.KindAccepted, "enqueue.accepted.full.json"},
		{ledger.KindConflictRejected, "enqueue.conflict_rejected.json"},
		{ledger.KindBindingExpired, "binding.expired.json"},
		{ledger.KindAccepted, "enqueue.accepted.rebound.json"},
	}
	for _, w := range want {
		msg := receive(t, messages)
		attributes, err := outbox.AttributesOf(msg)
		if err != nil {
			t.Fatal(err)
		}
		if attributes.Kind != w.kind {
			t.Fatalf("position %d is %s, want %s", attributes.Position, attributes.Kind, w.kind)
		}
		// Whatever the ID of the job is, it is the message's subject; the golden file has another.
		body := bytes.ReplaceAll(msg.Payload, []byte(attributes.JobID.String()), []byte(uuid.Nil.String()))
		compareGolden(t, w.golden, body)
		if err := validate(t, w.kind, msg.Payload); err != nil {
			t.Errorf("%s does not fit its schema: %v", w.golden, err)
		}
		checkSchemaIsStrict(t, w.kind, msg.Payload)
		msg.Ack()
	}
}

func compareGolden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, append(got, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (write it with -update)", err)
	}
	if diff := cmp.Diff(string(want), string(got)+"\n"); diff != "" {
		t.Errorf("%s (-want +got; -update writes it anew):\n%s", name, diff)
	}
}

// checkSchemaIsStrict takes each required member away, and adds one that nobody knows.
func checkSchemaIsStrict(t *testing.T, kind ledger.Kind, body []byte) {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Required []string `json:"required"`
	}
	text, _ := outbox.Schema(kind)
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	for _, name := range schema.Required {
		value := members[name]
		delete(members, name)
		if validate(t, kind, marshal(t, members)) == nil {
			t.Errorf("the schema of %s admits a body without %s", kind, name)
		}
		members[name] = json.RawMessage(`{"wrong":true}`)
		if validate(t, kind, marshal(t, members)) == nil {
			t.Errorf("the schema of %s admits any %s", kind, name)
		}
		members[name] = value
	}
	members["from_the_future"] = json.RawMessage(`[1]`)
	if err := validate(t, kind, marshal(t, members)); err != nil {
		t.Errorf("the schema of %s refuses a member of a later version: %v", kind, err)
	}
}

func validate(t *testing.T, kind ledger.Kind, body []byte) error {
	t.Helper()
	text, ok := outbox.Schema(kind)
	if !ok {
		t.Fatalf("%s has no schema", kind)
	}
	schema, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	name := "urn:daybook:schema:" + string(kind) + ":1"
	if err := compiler.AddResource(name, schema); err != nil {
		t.Fatal(err)
	}
	compiled, err := compiler.Compile(name)
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return compiled.Validate(value)
}

func marshal(t *testing.T, value any) []byte {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestNoSchemaOfAnUnknownKind(t *testing.T) {
	t.Parallel()
	for _, kind := range []ledger.Kind{"", "enqueue", "../schema"} {
		if text, ok := outbox.Schema(kind); ok {
			t.Errorf("%q has the schema %s", kind, text)
		}
	}
}
