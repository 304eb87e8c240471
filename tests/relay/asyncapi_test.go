package relay_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
)

// asyncAPI is what the tests read of the document.
type asyncAPI struct {
	AsyncAPI string `json:"asyncapi"`
	Info     struct{ Title, Version string }
	Channels map[string]struct {
		Address  string
		Messages map[string]reference
	}
	Operations map[string]struct {
		Action  string
		Channel reference
	}
	Components struct {
		Messages map[string]struct {
			Name             string
			ContentType      string
			Headers, Payload reference
		}
	}
}

type reference struct {
	Ref string `json:"$ref"`
}

func document(t *testing.T) (text []byte, parsed asyncAPI) {
	t.Helper()
	text, err := outbox.AsyncAPI()
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &parsed); err != nil {
		t.Fatal(err)
	}
	return text, parsed
}

func TestAsyncAPI(t *testing.T) {
	t.Parallel()
	text, d := document(t)
	golden(t, "asyncapi.json", text)
	if d.AsyncAPI != "3.0.0" || d.Info.Title == "" || d.Info.Version == "" {
		t.Errorf("asyncapi %q, info %+v", d.AsyncAPI, d.Info)
	}
	for _, kind := range everyKind {
		name := string(kind)
		channel, message := d.Channels[name], d.Components.Messages[name]
		if channel.Address != outbox.Topic(kind) || channel.Messages[name].Ref != "#/components/messages/"+name {
			t.Errorf("channel %s: %+v", name, channel)
		}
		if d.Channels["all"].Messages[name].Ref != "#/components/messages/"+name {
			t.Errorf("the topic of all events has no %s", name)
		}
		if message.Name != name || message.ContentType != "application/json" {
			t.Errorf("message %s: %+v", name, message)
		}
		if operation := d.Operations["send."+name]; operation.Action != "send" || operation.Channel.Ref != "#/channels/"+name {
			t.Errorf("operation of %s: %+v", name, operation)
		}
	}
	if len(d.Channels) != len(everyKind)+1 || len(d.Components.Messages) != len(everyKind) {
		t.Errorf("%d channels, %d messages", len(d.Channels), len(d.Components.Messages))
	}

	// Every reference leads somewhere.
	var whole any
	if err := json.Unmarshal(text, &whole); err != nil {
		t.Fatal(err)
	}
	references := 0
	var walk func(value any)
	walk = func(value any) {
		switch value := value.(type) {
		case map[string]any:
			for name, member := range value {
				if text, ok := member.(string); ok && name == "$ref" {
					references++
					if !resolves(whole, text) {
						t.Errorf("%s leads nowhere", text)
					}
				}
				walk(member)
			}
		case []any:
			for _, element := range value {
				walk(element)
			}
		}
	}
	walk(whole)
	if references < 100 {
		t.Errorf("only %d references", references)
	}
}

func resolves(value any, reference string) bool {
	path, ok := strings.CutPrefix(reference, "#/")
	if !ok {
		return false
	}
	for name := range strings.SplitSeq(path, "/") {
		object, ok := value.(map[string]any)
		if !ok {
			return false
		}
		if value, ok = object[name]; !ok {
			return false
		}
	}
	return true
}

// documentSchemas returns the schemas of bodies as the document has them.
func documentSchemas(t *testing.T) map[ledger.Kind]*jsonschema.Schema {
	t.Helper()
	text, d := document(t)
	all := map[ledger.Kind]*jsonschema.Schema{}
	for name, message := range d.Components.Messages {
		all[ledger.Kind(name)] = compile(t, "urn:asyncapi", text, message.Payload.Ref)
	}
	return all
}

// The headers are those of a real message.
func TestAsyncAPIHeaders(t *testing.T) {
	t.Parallel()
	text, d := document(t)
	schema := compile(t, "urn:asyncapi", text, d.Components.Messages["job.failed"].Headers.Ref)
	event := ledger.Event{Position: 7, ID: 9, Kind: ledger.KindJobFailed, Body: []byte(`{}`)}
	metadata, err := json.Marshal(outbox.NewMessage(event, outbox.Source{Epoch: 1}).Metadata)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate(schema, metadata); err != nil {
		t.Error(err)
	}
	if validate(schema, []byte(strings.Replace(string(metadata), "job.failed", "job.done", 1))) == nil {
		t.Error("a kind that does not exist is described")
	}
}
