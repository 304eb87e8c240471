package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// The row is about the kind of statement whose 99th percentile is the largest, however often the others ran.
func TestStatementsFindTheSlowestKind(t *testing.T) {
	s := &statements{times: map[string][]time.Duration{
		"-- Quick and frequent.\nselect 1": {time.Millisecond, time.Millisecond, time.Millisecond},
		"-- Slow and seldom.\nselect 2":    {30 * time.Millisecond},
	}}
	row, err := s.row("work")
	if err != nil {
		t.Fatal(err)
	}
	if *row.Reached != 30 || *row.Met {
		t.Errorf("reached %v, met %v, want 30 and false", *row.Reached, *row.Met)
	}
	if !strings.Contains(row.Note, `"Slow and seldom." 1 times, 30.00 ms; "Quick and frequent." 3 times, 1.00 ms`) {
		t.Errorf("the note is %q", row.Note)
	}
}

func TestStatementsPassOverWhatWasCutOff(t *testing.T) {
	s := &statements{}
	ctx, cancel := context.WithCancel(t.Context())
	traced := s.TraceQueryStart(ctx, nil, pgx.TraceQueryStartData{SQL: "select 1"})
	cancel()
	s.TraceQueryEnd(traced, nil, pgx.TraceQueryEndData{Err: context.Canceled})
	if len(s.times) > 0 || s.failed != nil {
		t.Errorf("%v, %v, want nothing", s.times, s.failed)
	}
	failed := errors.New("no such table")
	traced = s.TraceQueryStart(t.Context(), nil, pgx.TraceQueryStartData{SQL: "select 1"})
	s.TraceQueryEnd(traced, nil, pgx.TraceQueryEndData{Err: failed})
	if _, err := s.row("work"); !errors.Is(err, failed) {
		t.Errorf("the error is %v, want %v", err, failed)
	}
}
