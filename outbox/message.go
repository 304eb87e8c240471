package outbox

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/ledger"
)

// The metadata of a message: CloudEvents 1.0 attributes, with the prefix of its binary mode, and W3C trace context.
const (
	MetadataSpecVersion  = "ce-specversion"
	MetadataID           = "ce-id"
	MetadataSource       = "ce-source"
	MetadataType         = "ce-type"
	MetadataSubject      = "ce-subject"
	MetadataTime         = "ce-time"
	MetadataSequence     = "ce-sequence"
	MetadataPartitionKey = "ce-partitionkey"
	MetadataTraceparent  = "traceparent"
)

// sequenceDigits is how many digits the largest position has.
const sequenceDigits = 19

// Source is a ledger in one of its lives.
type Source struct {
	// LedgerID is made with the ledger and stays, also through dump and restore.
	LedgerID uuid.UUID
	// Epoch is counted up when the ledger was restored or rewound: positions mean something within an epoch.
	Epoch int64
}

// ReadSource returns the ledger that db is.
func ReadSource(ctx context.Context, db ledger.Querier) (Source, error) {
	rows, err := db.Query(ctx, sourceSQL)
	if err != nil {
		return Source{}, fmt.Errorf("daybook: read the ledger's identity: %w", err)
	}
	source, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByPos[Source])
	if err != nil {
		return Source{}, fmt.Errorf("daybook: read the ledger's identity: %w", err)
	}
	return source, nil
}

const (
	sourcePrefix = "urn:daybook:"
	sourceEpoch  = ":epoch:"
)

// String returns the source as a URI: "urn:daybook:LEDGER-ID:epoch:N".
func (s Source) String() string {
	return sourcePrefix + s.LedgerID.String() + sourceEpoch + strconv.FormatInt(s.Epoch, 10)
}

func parseSource(text string) (Source, error) {
	rest, ok := strings.CutPrefix(text, sourcePrefix)
	id, epoch, cut := strings.Cut(rest, sourceEpoch)
	if !ok || !cut {
		return Source{}, fmt.Errorf("%q is not the URI of a ledger", text)
	}
	var (
		source Source
		err    error
	)
	if source.LedgerID, err = uuid.Parse(id); err != nil {
		return Source{}, fmt.Errorf("%q is not the URI of a ledger: %w", text, err)
	}
	if source.Epoch, err = strconv.ParseInt(epoch, 10, 64); err != nil {
		return Source{}, fmt.Errorf("%q is not the URI of a ledger: %w", text, err)
	}
	return source, nil
}

// messageID is a UUIDv5 in the name space of the ledger. Besides the event's id its instant goes in: after a rewind
// the same id may be given again, to another event, and a broker that takes a message for a duplicate would drop it.
func messageID(ledgerID uuid.UUID, event ledger.Event) uuid.UUID {
	name := make([]byte, 0, 16)
	name = binary.BigEndian.AppendUint64(name, uint64(event.ID))
	name = binary.BigEndian.AppendUint64(name, uint64(event.RecordedAt.UnixMicro()))
	return uuid.NewSHA1(ledgerID, name)
}

// NewMessage returns the event as a message. The payload is the event's body, with the bytes that were stored. The UUID
// is the same whenever and wherever the event is delivered. The metadata are:
//
//	ce-specversion   1.0
//	ce-id            the message's UUID
//	ce-source        the ledger and its epoch, see [Source]
//	ce-type          the kind
//	ce-subject       the job's ID; absent where the event has none
//	ce-time          when it was decided, RFC 3339, UTC, microseconds
//	ce-sequence      the position, with leading zeros (19 digits), so that it sorts as text
//	ce-partitionkey  the key digest: events of one key are in order; absent where the event has no key
//	traceparent      of the enqueue, where it had one
func NewMessage(event ledger.Event, source Source) *message.Message {
	id := messageID(source.LedgerID, event).String()
	msg := message.NewMessage(id, message.Payload(event.Body))
	msg.Metadata = message.Metadata{
		MetadataSpecVersion: "1.0",
		MetadataID:          id,
		MetadataSource:      source.String(),
		MetadataType:        string(event.Kind),
		MetadataTime:        event.RecordedAt.UTC().Format("2006-01-02T15:04:05.000000Z"),
		MetadataSequence:    fmt.Sprintf("%0*d", sequenceDigits, event.Position),
	}
	if event.JobID != uuid.Nil {
		msg.Metadata[MetadataSubject] = event.JobID.String()
	}
	if digest := event.KeyDigest(); digest != "" {
		msg.Metadata[MetadataPartitionKey] = string(digest)
	}
	if traceparent := traceparentOf(event.Body); traceparent != "" {
		msg.Metadata[MetadataTraceparent] = traceparent
	}
	return msg
}

// traceparentOf looks before it parses: most bodies have none.
func traceparentOf(body []byte) string {
	if !bytes.Contains(body, []byte(`"traceparent"`)) {
		return ""
	}
	var carried struct {
		Traceparent string `json:"traceparent"`
	}
	if json.Unmarshal(body, &carried) != nil {
		return ""
	}
	return carried.Traceparent
}

// Attributes is what a message says about its event, besides the body.
type Attributes struct {
	// ID is the message's UUID: stable per event, so it serves to recognise a second delivery.
	ID uuid.UUID
	// Source is the ledger and the epoch in which Position means something.
	Source Source
	// Position is the event's place in the ledger.
	Position ledger.Position
	// Kind says what happened.
	Kind ledger.Kind
	// JobID is the job that the event is about; zero where there is none.
	JobID uuid.UUID
	// KeyDigest is what people see of the key; "" where the event has none.
	KeyDigest ledger.KeyDigest
	// RecordedAt is when it was decided, in UTC, in microseconds.
	RecordedAt time.Time
	// Traceparent is the W3C trace context of the enqueue; "" where it had none.
	Traceparent string
}

// AttributesOf reads the metadata of a message made by [NewMessage], also after a broker has carried it. It returns an
// error that names what is missing or malformed.
func AttributesOf(msg *message.Message) (Attributes, error) {
	a := Attributes{
		Kind:        ledger.Kind(msg.Metadata[MetadataType]),
		KeyDigest:   ledger.KeyDigest(msg.Metadata[MetadataPartitionKey]),
		Traceparent: msg.Metadata[MetadataTraceparent],
	}
	malformed := func(name string, err error) (Attributes, error) {
		return Attributes{}, fmt.Errorf("daybook: message %s: %s: %w", msg.UUID, name, err)
	}
	var err error
	if a.ID, err = uuid.Parse(msg.Metadata[MetadataID]); err != nil {
		return malformed(MetadataID, err)
	}
	if a.Source, err = parseSource(msg.Metadata[MetadataSource]); err != nil {
		return malformed(MetadataSource, err)
	}
	position, err := strconv.ParseInt(msg.Metadata[MetadataSequence], 10, 64)
	if err != nil {
		return malformed(MetadataSequence, err)
	}
	a.Position = ledger.Position(position)
	if a.RecordedAt, err = time.Parse(time.RFC3339Nano, msg.Metadata[MetadataTime]); err != nil {
		return malformed(MetadataTime, err)
	}
	if subject, ok := msg.Metadata[MetadataSubject]; ok {
		if a.JobID, err = uuid.Parse(subject); err != nil {
			return malformed(MetadataSubject, err)
		}
	}
	return a, nil
}
