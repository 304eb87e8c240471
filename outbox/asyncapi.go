package outbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"github.com/daybook-go/daybook/ledger"
)

// object is a JSON object; its members are written in the order of their names.
type object = map[string]any

// AsyncAPI returns an AsyncAPI 3.0 document, as JSON, of the topics that a [Subscriber] and, with its default Topic, a
// [Relay] have, and of the messages on them: metadata as headers, bodies by the schemas that [Schema] returns. It is the
// same for every ledger; servers are the reader's to add.
func AsyncAPI() ([]byte, error) {
	document, err := asyncAPI()
	if err != nil {
		return nil, fmt.Errorf("daybook: describe the topics: %w", err)
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(document); err != nil {
		return nil, fmt.Errorf("daybook: describe the topics: %w", err)
	}
	return text.Bytes(), nil
}

func asyncAPI() (object, error) {
	channels, operations, messages, schemas := object{}, object{}, object{}, object{}
	all := object{}
	for _, kind := range kinds() {
		description, err := addSchema(schemas, kind)
		if err != nil {
			return nil, err
		}
		name := string(kind)
		messages[name] = object{
			"name": name, "title": name, "summary": description, "contentType": contentTypeJSON,
			"headers": object{"$ref": "#/components/schemas/headers"},
			"payload": object{"$ref": "#/components/schemas/" + name},
		}
		all[name] = object{"$ref": "#/components/messages/" + name}
		channels[name] = object{
			"address": Topic(kind), "summary": description,
			"messages": object{name: object{"$ref": "#/components/messages/" + name}},
		}
		operations["send."+name] = object{"action": "send", "channel": object{"$ref": "#/channels/" + name}}
	}
	channels["all"] = object{
		"address": TopicAll, "messages": all,
		"summary": "Every event, in the order of positions. The topic of a Subscriber only: a relay has one topic for each kind.",
	}
	operations["send.all"] = object{"action": "send", "channel": object{"$ref": "#/channels/all"}}
	schemas["headers"] = headersSchema()
	return object{
		"asyncapi": "3.0.0",
		"info": object{
			"title": "Daybook events", "version": "1",
			"description": "What PostgreSQL has decided about requests to enqueue, and what has become of jobs: CloudEvents 1.0 in " +
				"binary mode, at least once, in order for each key. In structured mode the headers are members of one " +
				contentTypeStructured + " object, and the payload is its member data.",
		},
		"defaultContentType": contentTypeJSON,
		"channels":           channels,
		"operations":         operations,
		"components":         object{"messages": messages, "schemas": schemas},
	}, nil
}

// addSchema adds the schema of a kind's bodies, with what its $defs hold beside it, and returns its description. In a
// document of which a schema is only a part, references begin at the document.
func addSchema(schemas object, kind ledger.Kind) (description string, err error) {
	text, ok := Schema(kind)
	if !ok {
		return "", fmt.Errorf("there is no schema of %s", kind)
	}
	var schema object
	if err := json.Unmarshal(text, &schema); err != nil {
		return "", fmt.Errorf("read the schema of %s: %w", kind, err)
	}
	definitions, _ := schema["$defs"].(object)
	for name, definition := range definitions {
		// A name means the same in all of them, or one of them would be described wrongly.
		if known, ok := schemas[name]; ok && !reflect.DeepEqual(known, definition) {
			return "", fmt.Errorf("the schemas do not agree about %s; that of %s is another", name, kind)
		}
		schemas[name] = definition
	}
	for _, member := range []string{"$schema", "$id", "$defs"} {
		delete(schema, member)
	}
	relocate(schema)
	schemas[string(kind)] = schema
	description, ok = schema["description"].(string)
	if !ok {
		return "", errors.New("the schema of " + string(kind) + " has no description")
	}
	return description, nil
}

// relocate rewrites the references inside a schema.
func relocate(value any) {
	switch value := value.(type) {
	case object:
		for name, member := range value {
			if text, ok := member.(string); ok && name == "$ref" {
				value[name] = strings.Replace(text, "#/$defs/", "#/components/schemas/", 1)
				continue
			}
			relocate(member)
		}
	case []any:
		for _, element := range value {
			relocate(element)
		}
	}
}

// headersSchema describes what [NewMessage] has as metadata.
func headersSchema() object {
	text := func(description string, more ...any) object {
		schema := object{"type": "string", "description": description}
		for i := 0; i+1 < len(more); i += 2 {
			schema[more[i].(string)] = more[i+1]
		}
		return schema
	}
	return object{
		"type":     "object",
		"required": []string{MetadataSpecVersion, MetadataID, MetadataSource, MetadataType, MetadataTime, MetadataSequence},
		"properties": object{
			MetadataSpecVersion:  text("CloudEvents' version.", "const", "1.0"),
			MetadataID:           text("The message's UUID: the same whenever the event is delivered.", "format", "uuid"),
			MetadataSource:       text("The ledger and its epoch.", "pattern", "^urn:daybook:[0-9a-f-]{36}:epoch:[0-9]+$"),
			MetadataType:         text("The kind.", "enum", kinds()),
			MetadataSubject:      text("The job's ID; absent where the event has none.", "format", "uuid"),
			MetadataTime:         text("When it was decided, in UTC, in microseconds.", "format", "date-time"),
			MetadataSequence:     text("The position, with leading zeros.", "pattern", fmt.Sprintf("^[0-9]{%d}$", sequenceDigits)),
			MetadataPartitionKey: text("The key digest: events of one key are in order; absent where the event has no key.", "pattern", "^[0-9a-f]{12}$"),
			MetadataTraceparent:  text("W3C trace context of the enqueue, where it had one."),
			MetadataContentType:  text("The payload's type, from a relay."),
		},
	}
}
