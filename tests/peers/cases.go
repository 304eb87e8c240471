package main

import (
	"context"
	"slices"
)

// Case is one piece of work that is measured.
type Case struct {
	// Name is what --only matches; where the work depends on how many do it at once, it ends in their number.
	Name string
	// Run measures it and returns its lines of the table. Most cases are a [Race]; what is told in milliseconds or in
	// bytes makes its rows itself.
	Run func(ctx context.Context, bench *Bench) ([]Row, error)
}

// cases are all of them, in the order of the table.
func cases(o Options) []Case {
	return slices.Concat(
		freshCases(o),
		replayCases(o),
		throttleCases(o),
		debounceCases(o),
		batchCases(),
		conflictCases(o),
		costCases(),
		deliveryCases(),
		projectingCases(),
		keepingUpCases(),
		rebuildCases(),
		memoryCases(),
		scaleCases(),
		workCases(),
		bindingsCases(),
		expiredCases(),
	)
}
