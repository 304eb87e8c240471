package show

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// Progress is how far something long has come.
type Progress struct {
	Done, Of int64
	Percent  float64
	// Rate is so many a second.
	Rate float64
	Left time.Duration
}

// lineEvery is the shortest time between two lines of a Meter that does not write to a terminal.
const lineEvery = 5 * time.Second

// barEvery is the shortest time between two changes of the bar.
const barEvery = 100 * time.Millisecond

// Meter shows progress: a bar on a terminal, a line now and then elsewhere.
type Meter struct {
	out      io.Writer
	about    string
	bar      *progressbar.ProgressBar
	terminal bool
	last     time.Time
	of       int64
}

// NewMeter returns a Meter that writes to out.
func NewMeter(out io.Writer, about string) *Meter {
	file, ok := out.(*os.File)
	return &Meter{out: out, about: about, terminal: ok && term.IsTerminal(int(file.Fd()))}
}

// Terminal reports whether somebody watches.
func (m *Meter) Terminal() bool { return m.terminal }

// Report shows how far it is. A failed write is no reason to end the work.
func (m *Meter) Report(p Progress) {
	if !m.terminal {
		if p.Done < p.Of && time.Since(m.last) < lineEvery {
			return
		}
		m.last = time.Now()
		line := fmt.Sprintf("%s: %s of %s (%.0f %%)", m.about, Count(p.Done), Count(p.Of), p.Percent)
		if p.Done < p.Of {
			line += fmt.Sprintf(", %s/s, %s left", Count(int64(p.Rate)), Age(p.Left))
		}
		_, _ = fmt.Fprintln(m.out, line)
		return
	}
	if p.Done < p.Of && p.Of == m.of && time.Since(m.last) < barEvery {
		return
	}
	// Rate and time left in words: the bar's own ones would count what an earlier, interrupted run had done.
	about := m.about
	if p.Done < p.Of && p.Rate > 0 {
		about += fmt.Sprintf(", %s/s, %s left", Count(int64(p.Rate)), Age(p.Left))
	}
	// A bar that was full once stays so, and the work may have become more.
	if m.bar == nil || m.bar.IsFinished() && p.Done < p.Of {
		m.bar = progressbar.NewOptions64(max(p.Of, 1), progressbar.OptionSetWriter(m.out), progressbar.OptionShowCount(),
			progressbar.OptionSetPredictTime(false), progressbar.OptionSetElapsedTime(false), progressbar.OptionUseANSICodes(false))
	}
	m.last, m.of = time.Now(), p.Of
	m.bar.ChangeMax64(max(p.Of, 1))
	_ = m.bar.Set64(p.Done)
	m.bar.Describe(about)
}

// End leaves the line of the bar; a report after that begins another.
func (m *Meter) End() {
	if m.bar != nil {
		_ = m.bar.Exit()
		_, _ = fmt.Fprintln(m.out)
		m.bar = nil
	}
}
