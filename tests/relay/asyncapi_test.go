package relay_test

import (
	_ "embed" // AsyncAPI's schema
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

// asyncAPISchema is AsyncAPI's own JSON Schema of its documents, unchanged, from the npm package @asyncapi/specs 6.11.1.
//
//go:embed testdata/asyncapi-3.0.0/schema.json
var asyncAPISchema []byte

// The document is one by AsyncAPI's own schema, which refuses what is not.
func TestAsyncAPIIsValid(t *testing.T) {
	t.Parallel()
	schema := compile(t, "http://asyncapi.com/definitions/3.0.0/asyncapi.json", asyncAPISchema, "")
	text, _ := document(t)
	if err := validate(schema, text); err != nil {
		t.Errorf("%v", err)
	}
	for what, damage := range map[string]func(document map[string]any){
		"a version that does not exist": func(d map[string]any) { d["asyncapi"] = "3.0" },
		"no title":                      func(d map[string]any) { delete(member(t, d, "info"), "title") },
		"an action that is none":        func(d map[string]any) { member(t, d, "operations", "send.all")["action"] = "publish" },
		"an operation without channel":  func(d map[string]any) { delete(member(t, d, "operations", "send.all"), "channel") },
		"an address that is a number":   func(d map[string]any) { member(t, d, "channels", "all")["address"] = 1 },
		"a member that nobody knows":    func(d map[string]any) { member(t, d, "channels", "job.failed")["topic"] = "t" },
		"headers that are no schema":    func(d map[string]any) { member(t, d, "components", "schemas", "headers")["type"] = "map" },
		"a body's schema that is none": func(d map[string]any) {
			member(t, d, "components", "schemas", "job.failed")["required"] = "v"
		},
	} {
		var damaged map[string]any
		if err := json.Unmarshal(text, &damaged); err != nil {
			t.Fatal(err)
		}
		damage(damaged)
		text, err := json.Marshal(damaged)
		if err != nil {
			t.Fatal(err)
		}
		if validate(schema, text) == nil {
			t.Errorf("a document with %s is taken for one", what)
		}
	}
}

// member returns the object that lies at a path.
func member(t *testing.T, object map[string]any, path ...string) map[string]any {
	t.Helper()
	for _, name := range path {
		inner, ok := object[name].(map[string]any)
		if !ok {
			t.Fatalf("the document has no object at %q", path)
		}
		object = inner
	}
	return object
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
