package outbox

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// With polls an hour apart, only a notification can end a wait.
func TestNotificationEndsAWait(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	l := newListener(listenerConfig{pool: db.Pool, logger: slog.New(slog.DiscardHandler), retry: time.Millisecond, probe: -1})
	t.Cleanup(l.close)
	w := newWaiter(l, time.Hour)
	t.Cleanup(w.leave)
	w.next = time.Hour

	wait := func(head ledger.Position) <-chan struct{} {
		ended := make(chan struct{})
		go func() {
			w.wait(t.Context(), head)
			close(ended)
		}()
		return ended
	}
	end := func(ended <-chan struct{}, why string) {
		t.Helper()
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Fatalf("the wait goes on: %s", why)
		}
	}
	notify := func(last int) {
		t.Helper()
		db.Exec(t, `select pg_notify($1, $2)`, ledger.NotifyChannel, fmt.Sprint(last))
	}
	end(wait(0), "what was notified before it listened is lost, so it must look once")

	ended := wait(5)
	notify(5)
	pgtest.WaitFor(t, time.Minute, func() bool { return l.last.Load() == 5 }, "the notification is there")
	notify(6)
	end(ended, "position 6 was notified")
	if last := l.last.Load(); last != 6 {
		t.Errorf("position %d ended the wait of a reader that is at 5", last)
	}

	// A connection that breaks is made again, and everybody looks once.
	ended = wait(6)
	db.Exec(t, `
		select pg_terminate_backend(pid) from pg_stat_activity
		where datname = current_database() and query ilike 'listen%'`)
	end(ended, "it listens again")
}

func TestWaitsGrowToThePollInterval(t *testing.T) {
	t.Parallel()
	w := newWaiter(nil, 5*time.Millisecond)
	var waits []time.Duration
	for range 5 {
		waits = append(waits, w.next)
		w.wait(t.Context(), 0)
	}
	if want := fmt.Sprint([]time.Duration{1e6, 2e6, 4e6, 5e6, 5e6}); fmt.Sprint(waits) != want {
		t.Errorf("waits %v, want %s", waits, want)
	}
	w.found()
	if w.next != firstWait {
		t.Errorf("after something was found the wait is %v, want %v", w.next, firstWait)
	}
}
