package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// statements times every statement of a pool, from when it is sent to when its last row is read. What a connection prepares on
// the way counts.
type statements struct {
	mu     sync.Mutex
	times  map[string][]time.Duration
	failed error // the first one
}

// traced is what lets a pool of [Bench.pool] be timed.
func (s *statements) traced(config *pgxpool.Config) { config.ConnConfig.Tracer = s }

type statementKey struct{}

type statementStart struct {
	text string
	at   time.Time
}

// TraceQueryStart notes when a statement begins.
func (s *statements) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return context.WithValue(ctx, statementKey{}, statementStart{data.SQL, time.Now()})
}

// TraceQueryEnd notes how long it has taken. One that was cut off because its caller has ended took no time of interest.
func (s *statements) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	start, ok := ctx.Value(statementKey{}).(statementStart)
	if !ok || ctx.Err() != nil {
		return
	}
	took := time.Since(start.at)
	s.mu.Lock()
	defer s.mu.Unlock()
	if data.Err != nil {
		if s.failed == nil {
			s.failed = fmt.Errorf("%s: %w", about(start.text), data.Err)
		}
		return
	}
	if s.times == nil {
		s.times = map[string][]time.Duration{}
	}
	s.times[start.text] = append(s.times[start.text], took)
}

// slowest returns the statement with the largest 99th percentile, with a note about all of them.
func (s *statements) slowest() (p99 float64, note string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	type kind struct {
		about string
		count int
		p99   float64
	}
	var kinds []kind
	for text, times := range s.times {
		slices.Sort(times)
		kinds = append(kinds, kind{about(text), len(times), milliseconds(percentile(times, 99))})
	}
	if len(kinds) == 0 {
		return 0, "", s.failed
	}
	slices.SortFunc(kinds, func(a, b kind) int {
		switch {
		case a.p99 > b.p99:
			return -1
		case a.p99 < b.p99:
			return 1
		}
		return strings.Compare(a.about, b.about)
	})
	var all []string
	for _, k := range kinds {
		all = append(all, fmt.Sprintf("%q %d times, %.2f ms", k.about, k.count, k.p99))
	}
	return kinds[0].p99, "p99 of each statement: " + strings.Join(all, "; "), s.failed
}

// about is the beginning of the comment that each of Daybook's statements begins with, or of the statement.
func about(text string) string {
	line, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(text), "-- "), "\n")
	short := []rune(line)
	if len(short) > 40 {
		return string(short[:40]) + "…"
	}
	return line
}

// statementsRow is a row about the slowest of them.
func (s *statements) row(work string) (Row, error) {
	p99, note, err := s.slowest()
	if err != nil {
		return Row{}, err
	}
	row := Row{Work: work, Goal: atMost(20, " ms"), Reached: &p99, Note: note}
	row.Met = row.Goal.met(p99)
	return row, nil
}
