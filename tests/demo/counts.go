package main

import (
	"context"
	_ "embed" // the statement
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

//go:embed sql/written.sql
var writtenSQL string

// number is one line of the end: what the story demands, and what came of it.
type number struct {
	name      string
	want, got int64
}

// decided returns how often PostgreSQL decided what, from the counter that package commands keeps: the only trace that
// a replay leaves, and also a decision that was rolled back afterwards.
func decided(ctx context.Context, reader *sdkmetric.ManualReader) (map[string]int64, error) {
	var metrics metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &metrics); err != nil {
		return nil, err
	}
	outcomes := map[string]int64{}
	for _, scope := range metrics.ScopeMetrics {
		for _, m := range scope.Metrics {
			sum, ok := m.Data.(metricdata.Sum[int64])
			if !ok || m.Name != "daybook.enqueue.outcomes" {
				continue
			}
			for _, point := range sum.DataPoints {
				outcome, _ := point.Attributes.Value(attribute.Key("outcome"))
				outcomes[outcome.AsString()] += point.Value
			}
		}
	}
	return outcomes, nil
}

// written returns what the tables hold, by name.
func written(ctx context.Context, db *pgxpool.Pool) (map[string]int64, error) {
	rows, err := db.Query(ctx, writtenSQL)
	if err != nil {
		return nil, err
	}
	counts := map[string]int64{}
	var name string
	var count int64
	_, err = pgx.ForEachRow(rows, []any{&name, &count}, func() error {
		counts[name] = count
		return nil
	})
	return counts, err
}

// judge prints the numbers under a title and counts those that differ.
func (p *page) judge(title string, numbers []number) (wrong int) {
	p.printf("\n   %s", title)
	for _, n := range numbers {
		mark := "✓"
		if n.got != n.want {
			mark = fmt.Sprintf("✗ should be %d", n.want)
			wrong++
		}
		p.printf("     %-44s %5d  %s", n.name, n.got, mark)
	}
	return wrong
}
