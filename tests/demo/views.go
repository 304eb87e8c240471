package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/projections"
)

// operate shows what an operator sees, rebuilds a projection, and verifies all of them against the ledger.
func (p *page) operate(ctx context.Context, w *world, t *tally) error {
	p.chapter(6, "What operators see",
		"As a member of daybook_operator: digests and previews, no key, no whole hash, no payload.")
	if err := p.showKeys(ctx, w.operator, t); err != nil {
		return err
	}
	if err := p.showConflicts(ctx, w.operator, t); err != nil {
		return err
	}
	if err := p.showRates(ctx, w.operator, t); err != nil {
		return err
	}
	if err := p.showLags(ctx, w.operator); err != nil {
		return err
	}
	return p.rebuild(ctx, w.admin, t)
}

func (p *page) showKeys(ctx context.Context, db *pgxpool.Pool, t *tally) error {
	keys, err := projections.Keys(ctx, db, projections.KeyFilter{})
	if err != nil {
		return err
	}
	t.viewed.keys = int64(len(keys))
	rows := []string{"key_digest\tkey_preview\tscope\tjob\taccepted\tconflicts\tlast_outcome"}
	for _, k := range keys {
		rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%s\t%d\t%d\t%s", k.KeyDigest, k.KeyPreview, k.Scope, short(k.JobID.String()), k.Accepted, k.Conflicts, k.LastOutcome))
	}
	p.table("view_key", rows)
	return nil
}

func (p *page) showConflicts(ctx context.Context, db *pgxpool.Pool, t *tally) error {
	conflicts, err := projections.Conflicts(ctx, db, projections.ConflictFilter{})
	if err != nil {
		return err
	}
	t.viewed.conflicts = int64(len(conflicts))
	rows := []string{"position\tkey_digest\tkey_preview\texisting job\ttype\tdifferent"}
	for _, c := range conflicts {
		rows = append(rows, fmt.Sprintf("%d\t%s\t%s\t%s\t%s\t%s", c.Position, c.KeyDigest, c.KeyPreview, short(c.ExistingJobID.String()), c.Type, strings.Join(c.Fields, ", ")))
	}
	p.table("view_conflict", rows)
	return nil
}

func (p *page) showRates(ctx context.Context, db *pgxpool.Pool, t *tally) error {
	rates, err := projections.DecisionRates(ctx, db, projections.RateFilter{})
	if err != nil {
		return err
	}
	rows := []string{"minute\tscope\tqueue\ttype\toutcome\tdecisions"}
	for _, r := range rates {
		switch r.Outcome {
		case "accepted":
			t.viewed.accepted += r.Decisions
		case "conflict_rejected":
			t.viewed.rejected += r.Decisions
		}
		rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%d", r.Minute.Format("15:04"), r.Scope, r.Queue, r.Type, r.Outcome, r.Decisions))
	}
	p.table("view_decision_rate", rows)
	return nil
}

func (p *page) showLags(ctx context.Context, db *pgxpool.Pool) error {
	status, err := ledger.ReadStatus(ctx, db)
	if err != nil {
		return err
	}
	rows := []string{
		"reader\tposition\tlag",
		fmt.Sprintf("sequencing\t%d\t%d", status.Head, status.Unsequenced.Events),
	}
	for _, c := range status.Cursors {
		rows = append(rows, fmt.Sprintf("%s\t%d\t%d", c.Name, c.Cursor.Position, c.Lag.Events))
	}
	p.table("lags, in events", rows)
	return nil
}

// rebuild builds one projection anew beside the live one, swaps the two, and then compares all of them, row by row, with
// what the ledger says.
func (p *page) rebuild(ctx context.Context, db *pgxpool.Pool, t *tally) error {
	p.printf("")
	for _, projection := range projections.Builtin() {
		if projection.Name != "view_key" {
			continue
		}
		result, err := projections.Rebuild(ctx, db, projection, projections.RebuildConfig{})
		if err != nil {
			return err
		}
		if !result.Swapped {
			return fmt.Errorf("the rebuild of %s was not put in place", result.Projection)
		}
		t.viewed.rebuilt = int64(result.Position)
		p.line("rebuilt", "%s, %d positions, in place of the live one; the old one is in %s", result.Projection, result.Position, result.OldSchema)
		if err := p.compareWithOld(ctx, db, result.OldSchema, t); err != nil {
			return err
		}
	}
	for _, projection := range projections.Builtin() {
		report, err := projections.Verify(ctx, db, projection)
		if err != nil {
			return err
		}
		for _, table := range report.Tables {
			differing := table.Missing + table.Extra + table.Different
			t.viewed.unequal += differing
			p.line("verified", "%s up to position %d: %d rows, %d differ", table.Table, report.Position, table.Rows, differing)
		}
	}
	return nil
}

// compareWithOld holds the rebuilt table against the one that it replaced: both ways, whole rows.
func (p *page) compareWithOld(ctx context.Context, db *pgxpool.Pool, oldSchema string, t *tally) error {
	var differing int64
	err := db.QueryRow(ctx, `
		select count(*)
		from (
			(table daybook.view_key except table `+oldSchema+`.view_key)
			union all
			(table `+oldSchema+`.view_key except table daybook.view_key)
		) as d`).Scan(&differing)
	if err != nil {
		return err
	}
	t.viewed.unequal += differing
	p.line("compared", "view_key with the one it replaced: %d rows differ", differing)
	return nil
}

// table prints rows of cells that are apart by tabs, the first of them the header.
func (p *page) table(title string, rows []string) {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, "     "+row)
	}
	_ = w.Flush() // a strings.Builder takes everything
	p.printf("\n   %s\n%s", title, strings.TrimRight(b.String(), "\n"))
}
