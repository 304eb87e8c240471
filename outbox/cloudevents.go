package outbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/ThreeDotsLabs/watermill/message"

	"github.com/daybook-go/daybook/ledger"
)

// MetadataContentType is the metadata that tells CloudEvents' two modes apart: it is "application/json", the body's
// own type, in binary mode and "application/cloudevents+json" in structured mode.
const MetadataContentType = "content-type"

// The content types of a relayed message.
const (
	contentTypeJSON       = "application/json"
	contentTypeStructured = "application/cloudevents+json"
)

// Format is how a relayed message carries an event: CloudEvents 1.0 has two modes.
type Format string

// The formats.
const (
	// FormatBinary: the attributes are metadata, the payload is the event's body; see [NewMessage].
	FormatBinary Format = "binary"
	// FormatStructured: the payload is a JSON object of the attributes, with the body as its member data; see
	// [NewStructuredMessage].
	FormatStructured Format = "structured"
)

// message returns an event in this format.
func (f Format) message(event ledger.Event, source Source) (*message.Message, error) {
	if f == FormatStructured {
		return NewStructuredMessage(event, source)
	}
	msg := NewMessage(event, source)
	msg.Metadata[MetadataContentType] = contentTypeJSON
	return msg, nil
}

// cloudEventPrefix is what the names of attributes have in front in metadata.
const cloudEventPrefix = "ce-"

// NewStructuredMessage returns the event as a CloudEvent in structured mode: the payload is one JSON object of media type
// application/cloudevents+json, with the attributes that [NewMessage] has as metadata, without their prefix, with
// datacontenttype, and with the body as the member data. UUID and metadata are those of [NewMessage], so that brokers
// can partition, and [AttributesOf] reads it as well; content-type is added.
//
// It returns an error where the body is not JSON, which PostgreSQL does not store.
func NewStructuredMessage(event ledger.Event, source Source) (*message.Message, error) {
	msg := NewMessage(event, source)
	envelope := make(map[string]any, len(msg.Metadata)+2)
	for name, value := range msg.Metadata {
		// All are strings in JSON too. traceparent has no prefix: it is also what W3C calls its header.
		envelope[strings.TrimPrefix(name, cloudEventPrefix)] = value
	}
	envelope["datacontenttype"] = contentTypeJSON
	envelope["data"] = event.Body

	var payload bytes.Buffer
	encoder := json.NewEncoder(&payload)
	// The body's strings stay as they are.
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(envelope); err != nil {
		return nil, fmt.Errorf("daybook: envelop the event at position %d: %w", event.Position, err)
	}
	msg.Payload = bytes.TrimSuffix(payload.Bytes(), []byte("\n"))
	msg.Metadata[MetadataContentType] = contentTypeStructured
	return msg, nil
}
