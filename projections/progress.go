package projections

import (
	"time"

	"github.com/daybook-go/daybook/ledger"
)

// Progress is how far a rebuild has come.
type Progress struct {
	Projection string
	// Position is how far the new tables have come, Head the last position of the ledger when that was last asked.
	Position, Head ledger.Position
	// Percent is Position of Head, 0 to 100. Positions are dense, so it is true.
	Percent float64
	// Rate is positions per second since this call began; what an earlier one had done does not count.
	Rate float64
	// TimeLeft is how long the rest takes at that rate.
	TimeLeft time.Duration
}

// pace measures a rebuild.
type pace struct {
	projection string
	from       ledger.Position
	start      time.Time
}

func newPace(projection string, from ledger.Position) pace {
	return pace{projection: projection, from: from, start: time.Now()}
}

func (p pace) progress(at, head ledger.Position) Progress {
	progress := Progress{Projection: p.projection, Position: at, Head: head, Percent: 100}
	if head > 0 {
		progress.Percent = 100 * float64(at) / float64(head)
	}
	if elapsed := time.Since(p.start).Seconds(); elapsed > 0 && at > p.from {
		progress.Rate = float64(at-p.from) / elapsed
		progress.TimeLeft = time.Duration(float64(head-at) / progress.Rate * float64(time.Second))
	}
	return progress
}
