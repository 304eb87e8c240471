package outbox_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// One group's handler does not return. Another group, of the same topic or of another, gets what is enqueued meanwhile, and
// all of it is sequenced.
func TestSlowConsumerHoldsUpNobody(t *testing.T) {
	t.Parallel()
	const events = 200
	db := pgtest.New(t)
	enqueue(t, db, 1)
	slow := subscribe(t, newSubscriber(t, outbox.Config{Pool: db.Pool, ConsumerGroup: "slow"}), outbox.TopicAll)
	release, handled := make(chan struct{}), make(chan ledger.Position)
	go func() {
		msg := <-slow
		<-release
		msg.Ack()
		attributes, _ := outbox.AttributesOf(msg)
		handled <- attributes.Position
	}()

	enqueue(t, db, events)
	for _, topic := range []string{outbox.TopicAll, outbox.Topic(ledger.KindAccepted)} {
		messages := subscribe(t, newSubscriber(t, outbox.Config{Pool: db.Pool, ConsumerGroup: "quick"}), topic)
		if diff := cmp.Diff(series(1, events+1), positions(t, messages, events+1)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", topic, diff)
		}
		waitCursor(t, db, "quick/"+topic, events+1)
	}
	status, err := ledger.ReadStatus(t.Context(), db.Pool)
	if err != nil {
		t.Fatal(err)
	}
	behind := map[string]ledger.Position{}
	for _, cursor := range status.Cursors {
		behind[cursor.Name] = cursor.Cursor.Position
	}
	want := map[string]ledger.Position{
		"slow/" + outbox.TopicAll: 0, "quick/" + outbox.TopicAll: events + 1, "quick/" + outbox.Topic(ledger.KindAccepted): events + 1,
	}
	if diff := cmp.Diff(want, behind); diff != "" || status.Head != events+1 || status.Unsequenced.Events != 0 {
		t.Errorf("head %d, %d not sequenced, cursors (-want +got):\n%s", status.Head, status.Unsequenced.Events, diff)
	}
	close(release)
	if at := <-handled; at != 1 {
		t.Errorf("the slow one has handled position %d, want 1", at)
	}
	if diff := cmp.Diff(series(2, events+1), positions(t, slow, events)); diff != "" {
		t.Errorf("then the slow one (-want +got):\n%s", diff)
	}
}
