package outbox

import (
	_ "embed" // the statements
	"strconv"
	"strings"
)

var (
	//go:embed sql/lock.sql
	lockSQL string
	//go:embed sql/place.sql
	placeSQL string
	//go:embed sql/next.sql
	nextSQL string
	//go:embed sql/page.sql
	pageSQL string
	//go:embed sql/page_kind.sql
	pageKindSQL string
	//go:embed sql/ack.sql
	ackSQL string
	//go:embed sql/acked.sql
	ackedSQL string
	//go:embed sql/lock_projections.sql
	lockProjectionsSQL string
	//go:embed sql/probe.sql
	probeSQL string
	//go:embed sql/settled.sql
	settledSQL string
	//go:embed sql/source.sql
	sourceSQL string
)

// nextWindow is the limit that next.sql has written out.
const nextWindow = 10_000

// withLimit writes a limit out in a statement. As a parameter the planner would not know it, and could take a plan
// that sorts the whole backlog. Page sizes are halved and doubled only, so there are few such texts to prepare.
func withLimit(statement string, limit int) string {
	return strings.Replace(statement, "limit 1000", "limit "+strconv.Itoa(limit), 1)
}
