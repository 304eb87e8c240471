package main

import (
	"testing"
	"time"
)

// The window begins and ends with a completion, so that bursts of any size give their true rate.
func TestTallyTakesWholeBursts(t *testing.T) {
	start := time.Now()
	tally := newTally(1_000_000, 0, time.Second)
	for i := range 12 {
		// A burst of a thousand, each 300 ms.
		tally.addAt(start.Add(time.Duration(i+1)*300*time.Millisecond), 1000, 0)
	}
	select {
	case <-tally.done:
	default:
		t.Fatal("the window is not over")
	}
	completed, bad, rate, dry := tally.result()
	if completed != 12_000 || bad != 0 || dry {
		t.Errorf("completed %d, bad %d, dry %t, want 12000, 0, false", completed, bad, dry)
	}
	if rate < 3333 || rate > 3334 {
		t.Errorf("rate = %v, want 1000 each 300 ms", rate)
	}
}

func TestTallyTellsThatTheStockRanDry(t *testing.T) {
	start := time.Now()
	tally := newTally(300, 0, time.Second)
	tally.addAt(start.Add(time.Millisecond), 100, 0)
	tally.addAt(start.Add(2*time.Millisecond), 100, 100)
	select {
	case <-tally.done:
	default:
		t.Fatal("the stock is empty and the window not over")
	}
	if completed, bad, _, dry := tally.result(); completed != 200 || bad != 100 || !dry {
		t.Errorf("completed %d, bad %d, dry %t, want 200, 100, true", completed, bad, dry)
	}
}

func TestPercentile(t *testing.T) {
	times := make([]time.Duration, 200)
	for i := range times {
		times[i] = time.Duration(i + 1)
	}
	for _, test := range []struct {
		count, percent int
		want           time.Duration
	}{{200, 50, 100}, {200, 99, 198}, {1, 99, 1}, {3, 50, 2}} {
		if got := percentile(times[:test.count], test.percent); got != test.want {
			t.Errorf("percentile %d of %d = %d, want %d", test.percent, test.count, got, test.want)
		}
	}
}
