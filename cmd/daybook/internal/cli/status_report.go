package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/daybook-go/daybook/cmd/daybook/internal/show"
	"github.com/daybook-go/daybook/ledger"
)

// statusReport is a ledger.Status as programs read it. Ages are in seconds.
type statusReport struct {
	At        time.Time      `json:"at"`
	Epoch     int64          `json:"epoch"`
	Committed committedStage `json:"committed"`
	Sequenced sequencedStage `json:"sequenced"`
	Published []readerStage  `json:"published"`
	Projected []readerStage  `json:"projected"`
	// Rebuilding are rebuilds that are under way or were left unfinished.
	Rebuilding []readerStage `json:"rebuilding,omitempty"`
	// Listeners is null where the user may not know.
	Listeners *int64         `json:"listeners"`
	Runners   []runnerReport `json:"runners"`
	Parked    parkedReport   `json:"parked"`
	Gaps      gapsReport     `json:"gaps"`
	Swept     int64          `json:"swept"`
	// Unhealthy is there with --check only.
	Unhealthy []string `json:"unhealthy,omitempty"`
}

type committedStage struct {
	Events    int64 `json:"events"`
	Estimated bool  `json:"estimated"`
}

type sequencedStage struct {
	Position   ledger.Position `json:"position"`
	AgeSeconds float64         `json:"age_seconds"`
	LagEvents  int64           `json:"lag_events"`
	LagSeconds float64         `json:"lag_seconds"`
}

type readerStage struct {
	Name         string          `json:"name"`
	Epoch        int64           `json:"epoch"`
	Position     ledger.Position `json:"position"`
	LagEvents    int64           `json:"lag_events"`
	LagSeconds   float64         `json:"lag_seconds"`
	MovedSeconds float64         `json:"moved_seconds"`
}

type runnerReport struct {
	Name        string            `json:"name"`
	Kind        ledger.RunnerKind `json:"kind"`
	Host        string            `json:"host"`
	PID         int32             `json:"pid"`
	BeatSeconds float64           `json:"beat_seconds"`
}

type parkedReport struct {
	Events     int64   `json:"events"`
	AgeSeconds float64 `json:"age_seconds"`
}

type gapsReport struct {
	Count       int64            `json:"count"`
	IDs         int64            `json:"ids"`
	OldestStamp string           `json:"oldest_stamp,omitempty"`
	Holder      *gapHolderReport `json:"holder,omitempty"`
}

type gapHolderReport struct {
	XID             string     `json:"xid"`
	PID             int32      `json:"pid,omitempty"`
	GID             string     `json:"gid,omitempty"`
	Database        string     `json:"database"`
	ApplicationName string     `json:"application_name,omitempty"`
	State           string     `json:"state,omitempty"`
	AgeSeconds      *float64   `json:"age_seconds,omitempty"`
	QueryStart      *time.Time `json:"query_start,omitempty"`
}

func newStatusReport(s ledger.Status) statusReport {
	r := statusReport{
		At: s.At, Epoch: s.Epoch, Swept: s.Swept,
		Committed: committedStage{int64(s.Head) + s.Unsequenced.Events, s.Estimated},
		Sequenced: sequencedStage{s.Head, s.HeadAge.Seconds(), s.Unsequenced.Events, s.Unsequenced.Age.Seconds()},
		Published: []readerStage{}, Projected: []readerStage{}, Runners: []runnerReport{},
		Parked: parkedReport{s.Parked.Events, s.Parked.Age.Seconds()},
		Gaps:   gapsReport{Count: s.Gaps.Count, IDs: s.Gaps.IDs, OldestStamp: s.Gaps.OldestStamp},
	}
	if s.Listeners >= 0 {
		r.Listeners = &s.Listeners
	}
	for _, c := range s.Cursors {
		kind, name := readerOf(c.Name)
		stage := readerStage{name, c.Cursor.Epoch, c.Cursor.Position, c.Lag.Events, c.Lag.Age.Seconds(), c.MovedAge.Seconds()}
		switch kind {
		case readerProjection:
			r.Projected = append(r.Projected, stage)
		case readerRebuild:
			r.Rebuilding = append(r.Rebuilding, stage)
		case readerGroup, readerRelay:
			stage.Name = c.Name
			r.Published = append(r.Published, stage)
		}
	}
	for _, runner := range s.Runners {
		r.Runners = append(r.Runners, runnerReport{runner.Name, runner.Kind, runner.Host, runner.PID, runner.BeatAge.Seconds()})
	}
	if h := s.Gaps.Holder; h != nil {
		holder := &gapHolderReport{XID: h.XID, PID: h.PID, GID: h.GID, Database: h.Database, ApplicationName: h.ApplicationName, State: h.State}
		if h.State != "" {
			age := h.Age.Seconds()
			holder.AgeSeconds = &age
		}
		if !h.QueryStart.IsZero() {
			holder.QueryStart = &h.QueryStart
		}
		r.Gaps.Holder = holder
	}
	return r
}

func (r statusReport) write(a *app) error {
	about := ""
	if r.Committed.Estimated {
		about = "~"
	}
	rows := [][]string{
		{"committed", show.Nothing, about + show.Count(r.Committed.Events), show.Nothing, show.Nothing, show.Nothing},
		{
			"sequenced", show.Nothing, show.Count(int64(r.Sequenced.Position)), about + show.Count(r.Sequenced.LagEvents),
			waited(r.Sequenced.LagEvents, r.Sequenced.LagSeconds), moved(r.Sequenced.AgeSeconds, r.Sequenced.Position > 0),
		},
	}
	for _, stage := range []struct {
		word    string
		readers []readerStage
	}{{"published", r.Published}, {"projected", r.Projected}, {"rebuilding", r.Rebuilding}} {
		if len(stage.readers) == 0 && stage.word != "rebuilding" {
			rows = append(rows, []string{stage.word, "nobody yet", show.Nothing, show.Nothing, show.Nothing, show.Nothing})
		}
		for _, c := range stage.readers {
			name := c.Name
			if c.Epoch != r.Epoch {
				name += fmt.Sprintf(" (epoch %d)", c.Epoch)
			}
			rows = append(rows, []string{
				stage.word, name, show.Count(int64(c.Position)), about + show.Count(c.LagEvents),
				waited(c.LagEvents, c.LagSeconds), moved(c.MovedSeconds, true),
			})
		}
	}
	err := show.Table(a.Stdout, []show.Column{
		{Title: "stage"},
		{Title: "reader"},
		{Title: "position", Number: true},
		{Title: "lag", Number: true},
		{Title: "waiting for", Number: true},
		{Title: "last moved", Number: true},
	}, rows, "")
	if err != nil {
		return err
	}
	fmt.Fprintf(a.Stdout, "\n%s\n%s\n", r.running(), r.Gaps.line())
	for _, runner := range r.Runners {
		fmt.Fprintf(a.Stdout, "%s: heard of %s, process %d on %s\n", runnerName(ledger.RunnerStatus{Name: runner.Name, Kind: runner.Kind}),
			moved(runner.BeatSeconds, true), runner.PID, show.Or(runner.Host))
	}
	if r.Parked.Events > 0 {
		fmt.Fprintf(a.Stdout, "parked: %s, the first %s; see daybook parked\n", show.Plural(r.Parked.Events, "event", "events"),
			moved(r.Parked.AgeSeconds, true))
	}
	if r.Swept > 0 {
		fmt.Fprintf(a.Stdout, "a sweep found %s that sequencing had missed: please report it\n", show.Plural(r.Swept, "event", "events"))
	}
	for _, problem := range r.Unhealthy {
		fmt.Fprintf(a.Stdout, "unhealthy: %s\n", show.Clean(problem))
	}
	return nil
}

// running says whether anybody is there to keep the lags small.
func (r statusReport) running() string {
	switch {
	case r.Listeners == nil:
		return "running: not known; members of pg_read_all_stats see it"
	case *r.Listeners == 0:
		return "running: nobody listens; a lag of 0 lasts until something commits"
	}
	return "running: " + show.Plural(*r.Listeners, "process listens", "processes listen")
}

func waited(events int64, seconds float64) string {
	if events == 0 {
		return show.Nothing
	}
	return show.Age(time.Duration(seconds * float64(time.Second)))
}

func moved(seconds float64, ever bool) string {
	if !ever {
		return "never"
	}
	return show.Age(time.Duration(seconds*float64(time.Second))) + " ago"
}

// line says in one line what may still appear below the head, and who keeps it open.
func (g gapsReport) line() string {
	if g.Count == 0 {
		return "gaps: none"
	}
	line := fmt.Sprintf("gaps: %s below the head may still appear", show.Plural(g.IDs, "id", "ids"))
	if g.Holder == nil {
		return line + "; nobody holds them, the next round of sequencing forgets them"
	}
	h := g.Holder
	who := []string{"database " + show.Or(h.Database), "xid " + h.XID}
	if h.ApplicationName != "" {
		who = append(who, "application "+show.Clean(h.ApplicationName))
	}
	if h.State != "" {
		who = append(who, show.Clean(h.State))
	}
	subject := fmt.Sprintf("process %d", h.PID)
	if h.PID == 0 {
		subject = fmt.Sprintf("prepared transaction %s", show.Clean(h.GID))
	}
	age := "a time that only members of pg_read_all_stats may know"
	if h.AgeSeconds != nil {
		age = show.Age(time.Duration(*h.AgeSeconds * float64(time.Second)))
	}
	line = fmt.Sprintf("%s; held by %s (%s), open for %s", line, subject, strings.Join(who, ", "), age)
	if h.QueryStart != nil {
		line += ", its last statement began at " + show.Time(*h.QueryStart)
	}
	return line
}
