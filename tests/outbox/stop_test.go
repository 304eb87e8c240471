package outbox_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// A consumer is stopped and started again at every position of a ledger, in the very moment of its ack: no loss, no gap, and
// nothing comes twice.
func TestRestartAtEveryPosition(t *testing.T) {
	t.Parallel()
	const events = 200
	for _, topic := range []string{outbox.TopicAll, outbox.Topic(ledger.KindJobStarted)} {
		t.Run(topic, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			appendEvents(t, db, ledger.KindJobStarted, events)
			var got []ledger.Position
			for range events {
				subscriber := newSubscriber(t, outbox.Config{Pool: db.Pool, PollOnly: true})
				got = append(got, positions(t, subscribe(t, subscriber, topic), 1)...)
				closeSubscriber(t, subscriber)
			}
			if diff := cmp.Diff(series(1, events), got); diff != "" {
				t.Errorf("positions (-want +got):\n%s", diff)
			}
			if at := cursorAt(t, db, "test/"+topic); at != events {
				t.Errorf("the cursor is at %d, want %d", at, events)
			}
		})
	}
}
