package outbox

import (
	"fmt"
	"slices"
	"strings"

	"github.com/daybook-go/daybook/ledger"
)

// TopicAll is the topic of all events.
const TopicAll = "daybook.events"

// Topic returns the topic of the events of one kind, such as "daybook.events.enqueue.accepted".
func Topic(kind ledger.Kind) string { return TopicAll + "." + string(kind) }

// kinds returns every kind that an event may have. A topic of any other would stay silent for ever, so it is refused.
func kinds() []ledger.Kind {
	return []ledger.Kind{
		ledger.KindAccepted, ledger.KindReplaced, ledger.KindNonReplaceable, ledger.KindConflictRejected,
		ledger.KindBindingExpired, ledger.KindBindingReleased,
		ledger.KindJobStarted, ledger.KindJobSucceeded, ledger.KindJobAttemptFailed, ledger.KindJobFailed,
		ledger.KindJobLeaseExpired, ledger.KindJobCancelled, ledger.KindJobPurged, ledger.KindJobReleased,
		ledger.KindJobRedriven,
	}
}

// kindOf returns the kind whose topic it is; "" for TopicAll.
func kindOf(topic string) (ledger.Kind, error) {
	if topic == TopicAll {
		return "", nil
	}
	kind := ledger.Kind(strings.TrimPrefix(topic, TopicAll+"."))
	if topic != Topic(kind) || !slices.Contains(kinds(), kind) {
		return "", fmt.Errorf("daybook: there is no topic %q; use outbox.TopicAll or outbox.Topic(kind) with one of ledger's kinds", topic)
	}
	return kind, nil
}
