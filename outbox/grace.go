package outbox

import (
	"context"
	"time"
)

// closeGrace is how long a statement may go on after the end. Statements of this package are short; this is for a
// server that no longer answers.
const closeGrace = 5 * time.Second

// withGrace returns a context for a statement that ends closeGrace after ctx: one that is under way at the end may finish. A
// cancelled one costs its connection, which then is still being closed when Close or Run returns.
func withGrace(ctx context.Context) (context.Context, context.CancelFunc) {
	statement, abandon := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(closeGrace, abandon) })
	return statement, func() {
		stop()
		abandon()
	}
}
