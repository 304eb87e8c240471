package main

import (
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestMedian(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   float64
	}{
		{[]float64{7}, 7},
		{[]float64{9, 1, 5}, 5},
		{[]float64{9, 1, 5, 2}, 3.5},
	} {
		if got := median(test.values); got != test.want {
			t.Errorf("median(%v) = %v, want %v", test.values, got, test.want)
		}
	}
}

// A machine that gets slower in the middle of a run leaves the ratio as it is.
func TestRatioComparesWithinRounds(t *testing.T) {
	daybook := Measure{Rates: []float64{200, 20, 2}}
	peer := Measure{Rates: []float64{100, 10, 1}}
	if got := ratio(daybook, peer); got != 2 {
		t.Errorf("ratio = %v, want 2", got)
	}
}

func TestGoalIsMet(t *testing.T) {
	yes, no := true, false
	for _, test := range []struct {
		goal    Goal
		reached float64
		want    *bool
		text    string
	}{
		{atLeast(0), 3, nil, "–"},
		{atLeast(1.5), 1.5, &yes, "≥ 1.5×"},
		{atLeast(1.5), 1.49, &no, "≥ 1.5×"},
		{atMost(0, " B"), 0, &yes, "≤ 0 B"},
		{atMost(0, " B"), 0.1, &no, "≤ 0 B"},
	} {
		if diff := cmp.Diff(test.want, test.goal.met(test.reached)); diff != "" {
			t.Errorf("%v with %v (-want +got):\n%s", test.goal, test.reached, diff)
		}
		if got := test.goal.String(); got != test.text {
			t.Errorf("goal prints as %q, want %q", got, test.text)
		}
	}
}

func TestOptions(t *testing.T) {
	for _, test := range []struct {
		args    []string
		rounds  int
		time    time.Duration
		writers []int
		many    int64 // bindings
		bad     bool
	}{
		{args: nil, rounds: 7, time: 1200 * time.Millisecond, writers: []int{1, 8, 32}, many: 10_000_000},
		{args: []string{"--quick"}, rounds: 3, time: 300 * time.Millisecond, writers: []int{1, 8, 32}, many: 200_000},
		{
			args: []string{"--quick", "--rounds", "5", "--bindings", "50000"}, rounds: 5, time: 300 * time.Millisecond,
			writers: []int{1, 8, 32}, many: 50_000,
		},
		{args: []string{"--writers", "2, 4"}, rounds: 7, time: 1200 * time.Millisecond, writers: []int{2, 4}, many: 10_000_000},
		{args: []string{"--writers", "0"}, bad: true},
		{args: []string{"--writers", "49"}, bad: true},
		{args: []string{"--only", "("}, bad: true},
		{args: []string{"--rounds", "0"}, bad: true},
		{args: []string{"--bindings", "9999"}, bad: true},
		{args: []string{"fresh"}, bad: true},
	} {
		o, err := parseOptions(test.args, io.Discard)
		if test.bad {
			if err == nil {
				t.Errorf("%q was taken", test.args)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", test.args, err)
			continue
		}
		want := []any{test.rounds, test.time, test.writers, test.many}
		if diff := cmp.Diff(want, []any{o.Rounds, o.RoundTime, o.Writers, o.Bindings}); diff != "" {
			t.Errorf("%q (-want +got):\n%s", test.args, diff)
		}
	}
}
