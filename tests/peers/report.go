package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Setting is one line of the header.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Row is one line of the table.
type Row struct {
	Case    string `json:"case"`
	Work    string `json:"work"`
	Against string `json:"against,omitempty"`
	// Goal is empty where there is none.
	Goal Goal `json:"goal,omitzero"`
	// Reached is in the goal's unit; absent where there is nothing to compare with.
	Reached *float64 `json:"reached,omitempty"`
	Met     *bool    `json:"met,omitempty"`
	Daybook *Measure `json:"daybook,omitempty"`
	Peer    *Measure `json:"peer,omitempty"`
	// Note says what the numbers can't.
	Note   string `json:"note,omitempty"`
	Errors int64  `json:"errors"`

	err error // the first of them
}

// Goal is what DESIGN §9 asks for: at least, or at most, so much.
type Goal struct {
	AtMost bool    `json:"at_most,omitempty"`
	Value  float64 `json:"value"`
	Unit   string  `json:"unit,omitempty"`
	Set    bool    `json:"-"`
}

func atLeast(value float64) Goal { return Goal{Value: value, Unit: "×", Set: value != 0} }

func atMost(value float64, unit string) Goal {
	return Goal{Value: value, Unit: unit, AtMost: true, Set: true}
}

// IsZero lets a goal that is not set stay out of the JSON.
func (g Goal) IsZero() bool { return !g.Set }

func (g Goal) String() string {
	switch {
	case !g.Set:
		return "–"
	case g.AtMost:
		return "≤ " + strconv.FormatFloat(g.Value, 'f', -1, 64) + g.Unit
	}
	return "≥ " + strconv.FormatFloat(g.Value, 'f', -1, 64) + g.Unit
}

func (g Goal) met(reached float64) *bool {
	if !g.Set {
		return nil
	}
	met := reached >= g.Value
	if g.AtMost {
		met = reached <= g.Value
	}
	return &met
}

// newRow compares rates.
func newRow(work string, peer Peer, daybook, other Measure) Row {
	reached := ratio(daybook, other)
	goal := atLeast(peer.Goal)
	return Row{
		Work: work, Against: peer.Name, Goal: goal, Reached: &reached, Met: goal.met(reached),
		Daybook: &daybook, Peer: &other, Errors: daybook.errors + other.errors, err: errors.Join(daybook.err, other.err),
	}
}

// Report is all that a run has found.
type Report struct {
	MadeAt    time.Time `json:"made_at"`
	Rounds    int       `json:"rounds"`
	RoundTime string    `json:"round_time"`
	Settings  []Setting `json:"settings"`
	Rows      []Row     `json:"rows"`
}

func (r *Report) add(name string, rows []Row) {
	for _, row := range rows {
		row.Case = name
		r.Rows = append(r.Rows, row)
	}
}

// failed is an error where anything that was measured went wrong. A goal that was not reached is none.
func (r *Report) failed() error {
	var errs []error
	for _, row := range r.Rows {
		if row.err != nil {
			errs = append(errs, fmt.Errorf("%s against %s: %d errors, first: %w", row.Case, row.Against, row.Errors, row.err))
		}
	}
	return errors.Join(errs...)
}

func (r *Report) writeJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(r); err != nil {
		return fmt.Errorf("print the report: %w", err)
	}
	return nil
}

func (r *Report) writeHeader(w io.Writer) {
	for _, s := range r.Settings {
		fmt.Fprintf(w, "%-32s %s\n", s.Name, s.Value)
	}
	fmt.Fprintf(w, "%-32s %d alternating, of %s each; medians\n\n", "rounds", r.Rounds, r.RoundTime)
}

func (r *Report) writeTable(w io.Writer) {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.AppendHeader(table.Row{
		"work", "against", "goal", "reached", "met", "daybook/s", "peer/s", "WAL B/op", "peer's WAL B/op", "errors",
	})
	right := []table.ColumnConfig{}
	for _, number := range []int{3, 4, 6, 7, 8, 9, 10} {
		right = append(right, table.ColumnConfig{Number: number, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(right)
	work := ""
	for _, row := range r.Rows {
		shown := row.Work
		switch {
		case shown == work:
			shown = ""
		case work != "":
			t.AppendSeparator()
		}
		work = row.Work
		t.AppendRow(table.Row{
			shown, orDash(row.Against), row.Goal, reachedText(row), metText(row.Met), rateText(row.Daybook), rateText(row.Peer),
			walText(row.Daybook), walText(row.Peer), row.Errors,
		})
	}
	t.Render()
	noted := map[string]bool{}
	for _, row := range r.Rows {
		if row.Note != "" && !noted[row.Work] {
			fmt.Fprintf(w, "%s: %s\n", row.Work, row.Note)
			noted[row.Work] = true
		}
	}
}

func orDash(s string) string {
	if s == "" {
		return "–"
	}
	return s
}

func reachedText(row Row) string {
	if row.Reached == nil {
		return "–"
	}
	unit := row.Goal.Unit
	if unit == "" {
		unit = "×"
	}
	return strconv.FormatFloat(*row.Reached, 'f', 2, 64) + unit
}

func metText(met *bool) string {
	switch {
	case met == nil:
		return "–"
	case *met:
		return "yes"
	}
	return "no"
}

// rateText leaves out what was not timed.
func rateText(m *Measure) string {
	if m == nil || len(m.Rates) == 0 {
		return "–"
	}
	return strconv.FormatFloat(m.Rate, 'f', 0, 64)
}

// walText leaves out what was not counted; 0 is a count.
func walText(m *Measure) string {
	if m == nil || len(m.wals) == 0 {
		return "–"
	}
	return strconv.FormatFloat(m.WAL, 'f', 0, 64)
}
