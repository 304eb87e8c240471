package projections

import (
	"bytes"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/daybook-go/daybook/ledger"
)

// bodyVersion is the version of bodies that this build can read. Bodies of one version only gain members.
const bodyVersion = 1

// members is what a view takes from the bodies of events; the schemas of all bodies are documented beside package
// outbox.
type members interface {
	// take reads the value of a member where it is wanted, and otherwise says that it is not.
	take(name jsontext.Value, value *jsontext.Decoder) (wanted bool, err error)
}

// bodies reads the bodies of a batch, one after the other. Only the members that a view wants are looked at, which takes
// half the time of decoding into a struct.
type bodies struct {
	text    bytes.Reader
	decoder *jsontext.Decoder
}

func newBodies() *bodies {
	b := &bodies{}
	b.decoder = jsontext.NewDecoder(&b.text)
	return b
}

// read reads what is wanted of an event's body. Every body has what a decision has.
func (b *bodies) read(event *ledger.Event, into members, decision *decisionBody) error {
	err := b.decode(event.Body, into)
	if err == nil {
		switch {
		case decision.Version != bodyVersion:
			err = fmt.Errorf("the body has version %d, this build reads version %d", decision.Version, bodyVersion)
		case decision.Type == "":
			err = errors.New("the body has no type")
		case decision.Queue == "":
			err = errors.New("the body has no queue")
		}
	}
	if err != nil {
		return BadEvent(*event, err)
	}
	return nil
}

func (b *bodies) decode(body []byte, into members) error {
	b.text.Reset(body)
	// PostgreSQL has checked the JSON, and in its json a repeated name is no error.
	b.decoder.Reset(&b.text, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if token, err := b.decoder.ReadToken(); err != nil || token.Kind() != '{' {
		return errors.Join(errors.New("the body is not an object"), err)
	}
	for b.decoder.PeekKind() == '"' {
		// A name as it is written, in quotes: to take it out of them would be an allocation for each.
		name, err := b.decoder.ReadValue()
		if err != nil {
			return fmt.Errorf("read the body: %w", err)
		}
		wanted, err := into.take(name, b.decoder)
		if err == nil && !wanted {
			err = b.decoder.SkipValue()
		}
		if err != nil {
			return fmt.Errorf("read the body, %s: %w", b.decoder.StackPointer(), err)
		}
	}
	_, err := b.decoder.ReadToken()
	if err != nil {
		return fmt.Errorf("read the body: %w", err)
	}
	return nil
}

// decisionBody is what every event about a request or a job has, and what some have.
type decisionBody struct {
	Version   int64
	Type      string
	Queue     string
	Mode      string
	ExpiresAt time.Time
}

func (d *decisionBody) take(name jsontext.Value, value *jsontext.Decoder) (wanted bool, err error) {
	switch string(name) {
	case `"v"`:
		d.Version, err = takeInt(value)
	case `"type"`:
		d.Type, err = takeString(value)
	case `"queue"`:
		d.Queue, err = takeString(value)
	case `"mode"`:
		d.Mode, err = takeString(value)
	case `"expires_at"`:
		d.ExpiresAt, err = takeTime(value)
	default:
		return false, nil
	}
	return true, err
}

// conflictBody is the rest of what a rejection's body has.
type conflictBody struct {
	decisionBody
	Fields                []string
	RequestDigest         string
	ExistingMode          string
	ExistingRequestDigest string
	BoundAt               time.Time
}

func (c *conflictBody) take(name jsontext.Value, value *jsontext.Decoder) (wanted bool, err error) {
	switch string(name) {
	case `"fields"`:
		c.Fields, err = takeStrings(value)
	case `"request_digest"`:
		c.RequestDigest, err = takeString(value)
	case `"existing_mode"`:
		c.ExistingMode, err = takeString(value)
	case `"existing_request_digest"`:
		c.ExistingRequestDigest, err = takeString(value)
	case `"bound_at"`:
		c.BoundAt, err = takeTime(value)
	default:
		return c.decisionBody.take(name, value)
	}
	return true, err
}

// jobBody is what view_job takes besides.
type jobBody struct {
	decisionBody
	Attempt       int64
	AttemptBudget int64
	RunAt         time.Time
	SourceJobID   uuid.UUID
}

func (j *jobBody) take(name jsontext.Value, value *jsontext.Decoder) (wanted bool, err error) {
	switch string(name) {
	case `"attempt"`:
		j.Attempt, err = takeInt(value)
	case `"attempt_budget"`:
		j.AttemptBudget, err = takeInt(value)
	case `"run_at"`:
		j.RunAt, err = takeTime(value)
	case `"source_job_id"`:
		var text string
		if text, err = takeString(value); err == nil && text != "" {
			j.SourceJobID, err = uuid.Parse(text)
		}
	default:
		return j.decisionBody.take(name, value)
	}
	return true, err
}

// The values of members; null is as good as an absent one.

func takeInt(value *jsontext.Decoder) (int64, error) {
	token, err := value.ReadToken()
	if err != nil || token.Kind() == 'n' {
		return 0, err
	}
	if token.Kind() != '0' {
		return 0, fmt.Errorf("it is %v, not a number", token.Kind())
	}
	return token.Int()
}

func takeString(value *jsontext.Decoder) (string, error) {
	token, err := value.ReadToken()
	if err != nil || token.Kind() == 'n' {
		return "", err
	}
	if token.Kind() != '"' {
		return "", fmt.Errorf("it is %v, not a string", token.Kind())
	}
	return token.String(), nil
}

func takeTime(value *jsontext.Decoder) (time.Time, error) {
	text, err := takeString(value)
	if err != nil || text == "" {
		return time.Time{}, err
	}
	return time.Parse(time.RFC3339Nano, text)
}

func takeStrings(value *jsontext.Decoder) (all []string, err error) {
	token, err := value.ReadToken()
	if err != nil || token.Kind() == 'n' {
		return nil, err
	}
	if token.Kind() != '[' {
		return nil, fmt.Errorf("it is %v, not an array", token.Kind())
	}
	for value.PeekKind() != ']' {
		text, err := takeString(value)
		if err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	_, err = value.ReadToken()
	return all, err
}

// outcomeOf returns the outcome that an event of that kind records; "" where it records none.
func outcomeOf(kind ledger.Kind) string {
	switch kind {
	case ledger.KindAccepted:
		return "accepted"
	case ledger.KindReplaced:
		return "replaced"
	case ledger.KindNonReplaceable:
		return "non_replaceable"
	case ledger.KindConflictRejected:
		return "conflict_rejected"
	default:
		return ""
	}
}
