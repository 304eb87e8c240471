package projections

import (
	"errors"
	"fmt"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/daybook-go/daybook/ledger"
)

// decisionBody is what the built-in views take from the body of an enqueue event; the schemas of all bodies are
// documented beside package outbox.
type decisionBody struct {
	Version   int       `json:"v"`
	Type      string    `json:"type"`
	Queue     string    `json:"queue"`
	Mode      string    `json:"mode"`
	ExpiresAt time.Time `json:"expires_at"`
}

// conflictBody is the rest of what a rejection's body has.
type conflictBody struct {
	decisionBody          `json:",inline"`
	Fields                []string  `json:"fields"`
	RequestDigest         string    `json:"request_digest"`
	ExistingMode          string    `json:"existing_mode"`
	ExistingRequestDigest string    `json:"existing_request_digest"`
	BoundAt               time.Time `json:"bound_at"`
}

// bodyVersion is the version of bodies that this build can read. Bodies of one version only gain members.
const bodyVersion = 1

// readBody decodes an event's body into what out points to, a decisionBody or what holds one.
func readBody(event ledger.Event, out any, decision *decisionBody) error {
	// PostgreSQL has checked the JSON, and in its json a repeated name is no error.
	err := jsonv2.Unmarshal(event.Body, out, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
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
		return BadEvent(event, err)
	}
	return nil
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
