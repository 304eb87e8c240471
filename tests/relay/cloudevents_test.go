package relay_test

import (
	"encoding/json"
	"net/url"
	"regexp"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// relayOne relays the only event of a ledger.
func relayOne(t *testing.T, db *pgtest.DB, format outbox.Format) *message.Message {
	t.Helper()
	b := newBroker(t)
	start(t, outbox.RelayConfig{Pool: db.Pool, Publisher: b, Name: string(format), Format: format})
	waitCursor(t, db, string(format), 1)
	return b.deliveries()[0].msg
}

// Both modes carry the same attributes and the same data, and keep to CloudEvents 1.0.
func TestCloudEvents(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.Exec(t, `
		insert into daybook.event (recorded_at, job_id, key_hash, kind, scope, key_preview, body)
		values (daybook.clock(), gen_random_uuid(), sha256('k'), 'enqueue.accepted', 'default', 'a<b…',
			'{"v":1, "text":"<&>\u00e9 \u2028","number":1.10,"traceparent":"00-0a00000000000000000000000000009c-b700000000000031-01"}')`)
	binary, structured := relayOne(t, db, outbox.FormatBinary), relayOne(t, db, outbox.FormatStructured)

	attributes := map[string]string{}
	for name, value := range binary.Metadata {
		switch {
		case len(name) > 3 && name[:3] == "ce-":
			attributes[name[3:]] = value
		case name == "content-type":
			attributes["datacontenttype"] = value
		default:
			attributes[name] = value
		}
	}
	checkAttributes(t, attributes)

	var envelope map[string]json.RawMessage
	if err := json.Unmarshal(structured.Payload, &envelope); err != nil {
		t.Fatal(err)
	}
	data := envelope["data"]
	delete(envelope, "data")
	got := map[string]string{}
	for name, raw := range envelope {
		var value string
		if err := json.Unmarshal(raw, &value); err != nil {
			t.Errorf("attribute %s is %s, not a string", name, raw)
		}
		got[name] = value
	}
	if diff := cmp.Diff(attributes, got); diff != "" {
		t.Errorf("structured attributes (-binary +structured):\n%s", diff)
	}
	var wantData, gotData any
	if err := json.Unmarshal(binary.Payload, &wantData); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &gotData); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(wantData, gotData); diff != "" {
		t.Errorf("data (-binary +structured):\n%s", diff)
	}
	if structured.UUID != binary.UUID || structured.Metadata["content-type"] != "application/cloudevents+json" {
		t.Errorf("UUID %s and %s, metadata %v", structured.UUID, binary.UUID, structured.Metadata)
	}
	if _, err := outbox.AttributesOf(structured); err != nil {
		t.Error(err)
	}
}

// checkAttributes checks what section 3.1 of CloudEvents 1.0 says of attributes and their types.
func checkAttributes(t *testing.T, attributes map[string]string) {
	t.Helper()
	name := regexp.MustCompile(`^[a-z0-9]{1,20}$`)
	for n, value := range attributes {
		if !name.MatchString(n) {
			t.Errorf("%q is no name of an attribute", n)
		}
		if value == "" {
			t.Errorf("attribute %s is empty", n)
		}
	}
	for _, required := range []string{"id", "source", "specversion", "type"} {
		if _, ok := attributes[required]; !ok {
			t.Errorf("the required attribute %s is missing", required)
		}
	}
	if attributes["specversion"] != "1.0" {
		t.Errorf("specversion %q", attributes["specversion"])
	}
	if source, err := url.Parse(attributes["source"]); err != nil || source.Scheme == "" {
		t.Errorf("source %q is no absolute URI: %v", attributes["source"], err)
	}
	if _, err := time.Parse(time.RFC3339Nano, attributes["time"]); err != nil {
		t.Errorf("time: %v", err)
	}
	if attributes["datacontenttype"] != "application/json" {
		t.Errorf("datacontenttype %q", attributes["datacontenttype"])
	}
	for _, extension := range []string{"subject", "sequence", "partitionkey", "traceparent"} {
		if attributes[extension] == "" {
			t.Errorf("attribute %s is missing", extension)
		}
	}
}

// What is not JSON has no envelope.
func TestStructuredNeedsJSON(t *testing.T) {
	t.Parallel()
	event := ledger.Event{Position: 7, ID: 9, Kind: ledger.KindJobFailed, Body: []byte(`{"v":`), RecordedAt: time.Unix(0, 0)}
	if _, err := outbox.NewStructuredMessage(event, outbox.Source{LedgerID: uuid.New(), Epoch: 1}); err == nil {
		t.Error("a truncated body is enveloped")
	}
}
