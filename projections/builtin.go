package projections

// Builtin returns the projections that Daybook brings along, whose tables its migrations make: view_conflict,
// view_decision_rate, view_job and view_key, in this order.
func Builtin() []Projection {
	return []Projection{ViewConflict(), ViewDecisionRate(), ViewJob(), ViewKey()}
}
