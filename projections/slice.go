package projections

import (
	"encoding/binary"
	"slices"

	"github.com/daybook-go/daybook/ledger"
)

// Slicing says by what the events of a projection fall apart into slices that have nothing to do with one another: an
// event of one slice changes no row that an event of another one reads or changes. A rebuild folds such slices at once, each
// with a cursor of its own.
type Slicing int

// The ways of slicing.
const (
	// SliceNone: the events are folded in one order.
	SliceNone Slicing = iota
	// SliceByKey: an event changes only rows of its own key. Events without a key are all in one slice.
	SliceByKey
	// SliceByJob: an event changes only rows of its own job, [ledger.Event.JobID].
	SliceByJob
)

// MaxSlices is the most slices of a rebuild.
const MaxSlices = 32

// slice is the share of the events that one lane folds: number index of count; of everything where count is 1 or 0.
type slice struct {
	by           Slicing
	index, count int
}

func (s slice) has(event *ledger.Event) bool {
	if s.count <= 1 {
		return true
	}
	var hash []byte
	switch {
	case s.by == SliceByJob:
		hash = event.JobID[:]
	case event.KeyHash != nil:
		hash = event.KeyHash[:]
	default:
		return s.index == 0
	}
	// The end of a job's id is random, its beginning is a time; a hash is as good everywhere.
	return int(binary.BigEndian.Uint32(hash[len(hash)-4:])%uint32(s.count)) == s.index //nolint:gosec // 1 to MaxSlices
}

// pick returns the events beyond a position that the lane is to fold.
func (l *lane) pick(position ledger.Position, events []ledger.Event) []ledger.Event {
	first := slices.IndexFunc(events, func(e ledger.Event) bool { return e.Position > position })
	if first < 0 {
		return nil
	}
	events = events[first:]
	if len(l.Kinds) == 0 && l.slice.count <= 1 {
		return events
	}
	wanted := make([]ledger.Event, 0, len(events)/max(1, l.slice.count)+1)
	for i := range events {
		if l.wants(events[i].Kind) && l.slice.has(&events[i]) {
			wanted = append(wanted, events[i])
		}
	}
	return wanted
}
