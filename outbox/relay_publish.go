package outbox

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/cenkalti/backoff/v5"
	"github.com/google/uuid"

	"github.com/daybook-go/daybook/ledger"
)

// firstBackOff is the first pause after a failed attempt.
const firstBackOff = 100 * time.Millisecond

// maxReason is how much of an error is kept with a parked event, in bytes.
const maxReason = 1000

// sender publishes events one by one, and tells what the errors mean.
type sender struct {
	publisher message.Publisher
	topic     func(ledger.Event) string
	format    Format
	poison    func(error) bool
}

// unsendable marks an error that comes before the broker has seen the message, and so would come every time.
type unsendable struct{ error }

func (u unsendable) Unwrap() error { return u.error }

// publish makes a message of an event and publishes it.
func (s sender) publish(ctx context.Context, event ledger.Event, source Source) (err error) {
	// As Watermill's Recoverer does: the same event would end the process again after each restart.
	defer func() {
		if r := recover(); r != nil {
			err = unsendable{fmt.Errorf("panic: %v", r)}
		}
	}()
	topic := s.topic(event)
	if topic == "" {
		return unsendable{errors.New("the event has no topic")}
	}
	msg, err := s.format.message(event, source)
	if err != nil {
		return unsendable{err}
	}
	msg.SetContext(ctx)
	return s.publisher.Publish(topic, msg)
}

// eventsFault says whether an error is the event's own, and whether trying again is of no use.
func (s sender) eventsFault(err error) (fault, final bool) {
	var u unsendable
	if errors.As(err, &u) {
		return true, true
	}
	// Somebody's shutdown, whoever else may think it poison.
	if errors.Is(err, context.Canceled) {
		return false, false
	}
	return s.poison(err), false
}

// notTheConnection is the default of RelayConfig.Poison.
func notTheConnection(err error) bool {
	var network net.Error
	var timeout interface{ Timeout() bool }
	switch {
	case errors.As(err, &network),
		errors.As(err, &timeout) && timeout.Timeout(),
		errors.Is(err, context.DeadlineExceeded),
		errors.Is(err, net.ErrClosed),
		errors.Is(err, io.EOF),
		errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, io.ErrClosedPipe):
		return false
	}
	return true
}

// orderKey is what an event keeps its order with: its key, without one its job, without a job nothing but itself. The
// three have different lengths, so they are never equal.
func orderKey(event ledger.Event) string {
	switch {
	case event.KeyHash != nil:
		return string(event.KeyHash[:])
	case event.JobID != uuid.Nil:
		return string(event.JobID[:])
	}
	return string(binary.BigEndian.AppendUint64(nil, uint64(event.ID)))
}

// reasonOf is an error as a parked event shows it: something PostgreSQL can store, and not without end.
func reasonOf(err error) string {
	text := strings.ReplaceAll(strings.ToValidUTF8(err.Error(), "\uFFFD"), "\x00", "\uFFFD")
	if len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason], "") + "…"
	}
	return text
}

func newBackOff(longest time.Duration) *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval = min(firstBackOff, longest)
	b.MaxInterval = longest
	b.Multiplier = 2
	return b
}
