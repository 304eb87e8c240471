package main

// tally is what came of the story.
type tally struct {
	asked, unanswered int
	lost              int64
	published         int
	decided, written  map[string]int64
	viewed            viewed
}

// viewed is what operators see of it.
type viewed struct {
	keys, conflicts, accepted, rejected int64
	// rebuilt is how many events the rebuild read, and unequal how many rows verifying found to differ.
	rebuilt, unequal int64
}

// judgeAll compares everything with what the story demands, and returns how many numbers differ.
func (p *page) judgeAll(t *tally) (wrong int) {
	p.printf("\n8. What it comes to")
	wrong += p.judge("asked", []number{
		{"requests sent to the shop", 14, int64(t.asked)},
		{"answers lost on the way", 1, int64(t.unanswered)},
		{"connections cut", 1, t.lost},
	})
	wrong += p.judge("decided by PostgreSQL", []number{
		{"accepted, one of them rolled back", 6, t.decided["accepted"]},
		{"replayed", 5, t.decided["replayed"]},
		{"conflict_rejected", 3, t.decided["conflict_rejected"]},
		{"anything else", 0, sum(t.decided) - t.decided["accepted"] - t.decided["replayed"] - t.decided["conflict_rejected"]},
	})
	wrong += p.judge("written by Daybook", []number{
		{"jobs", 5, t.written["job"]},
		{"bindings", 5, t.written["binding"]},
		{"events", 6, t.written["event"]},
		{"  enqueue.accepted", 5, t.written["enqueue.accepted"]},
		{"  enqueue.conflict_rejected", 1, t.written["enqueue.conflict_rejected"]},
		{"last position", 6, t.written["position"]},
	})
	wrong += p.judge("written by the shop", []number{
		{"orders", 2, t.written["orders"]},
		{"  whose job is there", 2, t.written["orders with their job"]},
		{"  of the transaction rolled back", 0, t.written["of the order rolled back"]},
		{"articles taken from stock", 2, t.written["sold"]},
		{"payments", 3, t.written["payments"]},
		{"  whose job is there", 3, t.written["payments with their job"]},
	})
	wrong += p.judge("published and projected", []number{
		{"acceptance events that the subscriber got", 5, int64(t.published)},
		{"keys in view_key", 5, t.viewed.keys},
		{"conflicts in view_conflict", 1, t.viewed.conflicts},
		{"accepted in view_decision_rate", 5, t.viewed.accepted},
		{"conflict_rejected in view_decision_rate", 1, t.viewed.rejected},
		{"positions read by the rebuild", 6, t.viewed.rebuilt},
		{"rows that differ from the ledger", 0, t.viewed.unequal},
	})
	return wrong
}

func sum(counts map[string]int64) (total int64) {
	for _, n := range counts {
		total += n
	}
	return total
}
