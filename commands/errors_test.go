package commands

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// Unknown is said only where PostgreSQL may have committed; Retryable only where the transaction may be run again.
func TestCallErrorUnknownAndRetryable(t *testing.T) {
	t.Parallel()
	raised := func(severity, code string) error {
		return fmt.Errorf("wrapped: %w", &pgconn.PgError{SeverityUnlocalized: severity, Code: code})
	}
	for _, test := range []struct {
		name               string
		err                error
		unknown, retryable bool
	}{
		{"serialization failure", raised("ERROR", "40001"), false, true},
		{"deadlock", raised("ERROR", "40P01"), false, true},
		{"lock timeout", raised("ERROR", "55P03"), false, true},
		{"statement timeout", raised("ERROR", "57014"), false, false},
		{"aborted transaction", raised("ERROR", "25P02"), false, false},
		{"terminated", raised("FATAL", "57P01"), true, false},
		{"crashed", raised("FATAL", "57P02"), true, false},
		{"connection lost", errors.New("unexpected EOF"), true, false},
		{"cancelled", context.Canceled, true, false},
		{"no connection", notSentError{context.DeadlineExceeded}, false, false},
	} {
		var call *CallError
		if err := newCallError("enqueue", true, test.err); !errors.As(err, &call) || call.Unknown != test.unknown || Retryable(err) != test.retryable {
			t.Errorf("%s: unknown %v, retryable %v", test.name, call.Unknown, Retryable(err))
		}
		// The outcome of the caller's own transaction is the caller's to know.
		if err := newCallError("enqueue", false, test.err); !errors.As(err, &call) || call.Unknown {
			t.Errorf("%s in the caller's transaction is unknown", test.name)
		}
		if err := newCallError("enqueue", true, test.err); !errors.Is(err, test.err) {
			t.Errorf("%s: the cause is lost", test.name)
		}
	}
	if Retryable(nil) || Retryable(errors.New("40001")) {
		t.Error("an error that is not PostgreSQL's is retryable")
	}
}
