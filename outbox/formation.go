package outbox

import (
	"cmp"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/daybook-go/daybook/ledger"
)

// member is a projection of a group, on its way. It is always with one runner, and only that one touches it.
type member struct {
	name   string
	cursor ledger.Cursor
	opened bool // cursor is known; otherwise it has to be read
	// size is how many positions to fold at once, at most: less than usual after a failure.
	size int
	// suspect: the member goes by itself until it is past this position, because it could not fold a range that ends there.
	suspect ledger.Position
	// rest is when to turn to it again: another runner is at work, or something has failed that may pass.
	rest time.Time
	// quiet ends what says that it is being run.
	quiet func()
}

func (m *member) ready(now time.Time) bool { return m.opened && !now.Before(m.rest) }

// formation is who goes with whom: the projections of a group that are at about the same place have one runner, and are
// folded together. One that falls behind, or is about to fail, gets a runner of its own, and comes back when it can.
//
// There are as many runners as projections, because Watermill's router wants to know them beforehand. Most of them
// have nothing to do.
type formation struct {
	reach   ledger.Position // how far behind the others a projection may be that goes with them
	runners []*runner
	done    chan struct{} // closed when no projection is left

	mu   sync.Mutex
	left int // projections that have not stopped
}

// nowhere is the place of a runner that nobody is to join.
const nowhere ledger.Position = -1

func newFormation(p *Projector, group RangeGroup, l *listener, beats *beater) *formation {
	names := group.Names()
	f := &formation{reach: ledger.Position(p.config.RangeSize), done: make(chan struct{}), left: len(names)}
	for i, name := range names {
		r := &runner{
			projector: p,
			group:     group,
			formation: f,
			topic:     "daybook.ranges." + name,
			listener:  l,
			called:    make(chan struct{}, 1),
			tracer:    p.config.TracerProvider.Tracer(instrumentation),
			logger:    p.config.Logger,
			index:     i,
			place:     nowhere,
		}
		f.runners = append(f.runners, r)
		// All begin with the first one, which finds out where each is.
		first := f.runners[0]
		first.members = append(first.members, &member{
			name: name, size: p.config.RangeSize, quiet: beats.add(projectionRunnerPrefix + name),
		})
		first.manned = true
	}
	return f
}

// muster gives a runner those who were sent to it.
func (f *formation) muster(r *runner) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r.members, r.sent = append(r.members, r.sent...), nil
	r.manned = len(r.members) > 0
	if !r.manned {
		r.place = nowhere
	}
}

// arrange sends on those who should not go with the rest of a runner's members, or better go with another runner's.
func (f *formation) arrange(r *runner) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r.place = nowhere
	var known []*member
	for _, m := range slices.Clone(r.members) {
		switch {
		case !m.opened:
			continue
		case m.cursor.Position >= m.suspect:
			m.suspect = 0
			known = append(known, m)
		case len(r.members) > 1:
			f.send(r, f.spare(), m)
		default:
			return
		}
	}
	if len(known) == 0 {
		return
	}
	// Those who are far behind go together, so that who fell behind with others does not lose them. Twice as far as they may
	// come from, or they would be sent to and fro while the others go on.
	front := slices.MaxFunc(known, func(a, b *member) int { return cmp.Compare(a.cursor.Position, b.cursor.Position) }).cursor.Position
	var spare *runner
	for _, m := range known {
		if front-m.cursor.Position <= 2*f.reach {
			continue
		}
		if spare == nil {
			spare = f.spare()
		}
		f.send(r, spare, m)
	}
	for _, other := range f.runners {
		if other == r || other.place < front || other.place == front && other.index > r.index {
			continue
		}
		for _, m := range known {
			if slices.Contains(r.members, m) && other.place-m.cursor.Position <= f.reach {
				f.send(r, other, m)
			}
		}
	}
	for _, m := range known {
		if slices.Contains(r.members, m) {
			r.place = max(r.place, m.cursor.Position)
		}
	}
}

// send hands a member over to another runner.
func (f *formation) send(from, to *runner, m *member) {
	from.members = slices.DeleteFunc(from.members, func(other *member) bool { return other == m })
	from.manned = len(from.members)+len(from.sent) > 0
	to.sent, to.manned = append(to.sent, m), true
	to.call()
}

// spare returns a runner without members. There is one, because whoever asks has several.
func (f *formation) spare() *runner {
	return f.runners[slices.IndexFunc(f.runners, func(r *runner) bool { return !r.manned })]
}

// stop ends a projection for good.
func (f *formation) stop(r *runner, m *member, failure *RangeError) {
	r.projector.failed(failure)
	m.quiet()
	f.mu.Lock()
	defer f.mu.Unlock()
	r.members = slices.DeleteFunc(r.members, func(other *member) bool { return other == m })
	if f.left--; f.left == 0 {
		close(f.done)
	}
}

// about is what a log entry says of members.
func about(members []*member) slog.Attr {
	names := make([]string, len(members))
	for i, m := range members {
		names[i] = m.name
	}
	return slog.Any("projections", names)
}
