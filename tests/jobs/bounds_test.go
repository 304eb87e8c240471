package jobs_test

import (
	"testing"
	"time"

	"github.com/daybook-go/daybook/commands"
)

// A TTL, a window and a max wait of 1 ms and of 365 days are taken; more, or less, is refused before anything is written.
func TestWindowBounds(t *testing.T) {
	t.Parallel()
	db, queue := newFrozen(t)
	const year = 365 * 24 * time.Hour
	requests := map[string]func(time.Duration) commands.EnqueueOptions{
		"ttl":    func(d time.Duration) commands.EnqueueOptions { return idempotent("ttl"+d.String(), `1`, d) },
		"window": func(d time.Duration) commands.EnqueueOptions { return throttled("window"+d.String(), `1`, d) },
		"window of a debounce": func(d time.Duration) commands.EnqueueOptions {
			return debounced("debounce"+d.String(), `1`, commands.Debounce{Window: d})
		},
		"max_wait": func(d time.Duration) commands.EnqueueOptions {
			return debounced("max wait"+d.String(), `1`, commands.Debounce{Window: year, MaxWait: d})
		},
	}
	for name, request := range requests {
		for _, w := range ways() {
			field := name
			if name == "window of a debounce" {
				field = "window"
			}
			for _, d := range []time.Duration{-time.Second, time.Millisecond - 1, year + time.Millisecond} {
				_, err := w.ask(db, queue, request(d))
				t.Log(name, w.name, d)
				wantInvalid(t, err, field)
			}
		}
		// What is not a whole millisecond is cut.
		for _, d := range []time.Duration{time.Millisecond, time.Millisecond + 999*time.Microsecond, year, year + time.Millisecond - 1} {
			result := accept(t, queue, request(d))
			diff(t, name+" "+d.String(), noon.Add(d.Truncate(time.Millisecond)), result.ExpiresAt)
		}
	}
	for _, o := range []commands.EnqueueOptions{throttled("none", `1`, 0), debounced("none", `1`, commands.Debounce{})} {
		_, err := queue.Enqueue(t.Context(), o)
		wantInvalid(t, err, "window")
	}
	_, err := queue.Enqueue(t.Context(), debounced("none", `1`, commands.Debounce{Window: time.Second, Schedule: "now and then"}))
	wantInvalid(t, err, "schedule")
	diff(t, "what is written", footprint{Jobs: 16, Bindings: 16, Events: 16}, footprintOf(t, db.Pool))
}
