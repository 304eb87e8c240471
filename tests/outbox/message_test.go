package outbox_test

import (
	"strings"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/tests/pgtest"
)

var (
	testSource = outbox.Source{LedgerID: uuid.MustParse("6ba7b810-9dad-11d1-80b4-00c04fd430c8"), Epoch: 3}
	testHash   = ledger.KeyHash{0xab, 0xcd, 0xef, 0x01, 0x23, 0x45, 0x67}
)

func testEvent() ledger.Event {
	return ledger.Event{
		Position:   42,
		ID:         57,
		Kind:       ledger.KindAccepted,
		JobID:      uuid.MustParse("018f2d6e-0000-7000-8000-000000000001"),
		Scope:      "orders",
		KeyHash:    &testHash,
		KeyPreview: "orde…",
		Body:       []byte(`{"v":1, "traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}`),
		RecordedAt: time.Date(2026, 3, 1, 12, 0, 0, 250_000, time.UTC),
	}
}

// These bytes are a contract with every consumer: brokers recognise a second delivery by the UUID.
func TestMessageOfAnEvent(t *testing.T) {
	t.Parallel()
	event := testEvent()
	msg := outbox.NewMessage(event, testSource)
	want := message.Metadata{
		"ce-specversion":  "1.0",
		"ce-id":           "99cb390e-9b77-5170-8ff1-7286b037b78d",
		"ce-source":       "urn:daybook:6ba7b810-9dad-11d1-80b4-00c04fd430c8:epoch:3",
		"ce-type":         "enqueue.accepted",
		"ce-subject":      "018f2d6e-0000-7000-8000-000000000001",
		"ce-time":         "2026-03-01T12:00:00.000250Z",
		"ce-sequence":     "0000000000000000042",
		"ce-partitionkey": "abcdef012345",
		"traceparent":     "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	}
	if diff := cmp.Diff(want, msg.Metadata); diff != "" {
		t.Errorf("metadata (-want +got):\n%s", diff)
	}
	if msg.UUID != want["ce-id"] || string(msg.Payload) != string(event.Body) {
		t.Errorf("UUID %s, payload %s", msg.UUID, msg.Payload)
	}

	got, err := outbox.AttributesOf(msg.Copy())
	if err != nil {
		t.Fatal(err)
	}
	wantAttributes := outbox.Attributes{
		ID: uuid.MustParse(msg.UUID), Source: testSource, Position: 42, Kind: ledger.KindAccepted, JobID: event.JobID,
		KeyDigest: "abcdef012345", RecordedAt: event.RecordedAt, Traceparent: want["traceparent"],
	}
	if diff := cmp.Diff(wantAttributes, got); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
}

func TestMessageOfAnEventWithoutKeyOrJob(t *testing.T) {
	t.Parallel()
	event := testEvent()
	event.JobID, event.KeyHash, event.Body = uuid.Nil, nil, []byte(`{"v":1}`)
	msg := outbox.NewMessage(event, testSource)
	for _, name := range []string{outbox.MetadataSubject, outbox.MetadataPartitionKey, outbox.MetadataTraceparent} {
		if value, ok := msg.Metadata[name]; ok {
			t.Errorf("%s is %q, want it absent", name, value)
		}
	}
	if _, err := outbox.AttributesOf(msg); err != nil {
		t.Error(err)
	}
}

func TestMessageUUID(t *testing.T) {
	t.Parallel()
	id := func(change func(*ledger.Event, *outbox.Source)) string {
		event, source := testEvent(), testSource
		change(&event, &source)
		return outbox.NewMessage(event, source).UUID
	}
	first := id(func(*ledger.Event, *outbox.Source) {})
	same := map[string]string{
		"after a restore": id(func(_ *ledger.Event, s *outbox.Source) { s.Epoch++ }),
		"in another zone": id(func(e *ledger.Event, _ *outbox.Source) { e.RecordedAt = e.RecordedAt.In(time.FixedZone("", 3600)) }),
	}
	for name, got := range same {
		if got != first {
			t.Errorf("%s: UUID %s, want %s", name, got, first)
		}
	}
	other := map[string]string{
		"another event":             id(func(e *ledger.Event, _ *outbox.Source) { e.ID++ }),
		"the id again after rewind": id(func(e *ledger.Event, _ *outbox.Source) { e.RecordedAt = e.RecordedAt.Add(time.Microsecond) }),
		"another ledger":            id(func(_ *ledger.Event, s *outbox.Source) { s.LedgerID[0]++ }),
	}
	for name, got := range other {
		if got == first {
			t.Errorf("%s has the same UUID", name)
		}
	}
}

func TestAttributesOfSomethingElse(t *testing.T) {
	t.Parallel()
	malformed := map[string]string{
		outbox.MetadataID: "", outbox.MetadataSource: "urn:daybook:x:epoch:1", outbox.MetadataSequence: "one",
		outbox.MetadataTime: "yesterday", outbox.MetadataSubject: "job",
	}
	for name, value := range malformed {
		msg := outbox.NewMessage(testEvent(), testSource)
		msg.Metadata[name] = value
		if _, err := outbox.AttributesOf(msg); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s = %q: error %v", name, value, err)
		}
	}
}

func TestTraceIsCarriedFromEnqueueToMessage(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	parent := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1, 2, 3}, SpanID: trace.SpanID{4, 5, 6}, TraceFlags: trace.FlagsSampled,
	})
	ctx := trace.ContextWithRemoteSpanContext(t.Context(), parent)
	if _, err := newQueue(t, db).Enqueue(ctx, commands.EnqueueOptions{Type: "traced"}); err != nil {
		t.Fatal(err)
	}
	msg := receive(t, subscribe(t, newSubscriber(t, outbox.Config{Pool: db.Pool}), outbox.TopicAll))
	got := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(msg.Context(), propagation.MapCarrier(msg.Metadata)))
	if got.TraceID() != parent.TraceID() || !got.IsSampled() {
		t.Errorf("trace %s, want %s", got.TraceID(), parent.TraceID())
	}
}
