package ledger

import (
	"context"
	"errors"
	"net"

	"github.com/jackc/pgx/v5/pgconn"
)

// MayPass says whether a call that failed may succeed when it is made again as it is: whatever has to do with the
// connection, with a server that restarts, is full or is a replica, or with other transactions. A loop then waits and goes
// on; everything else would fail for ever. The transaction of the call cannot go on in any case.
//
// The end of the context of a call does not pass: a loop under one with a deadline ends with it. A connection that could not
// be made in its own connect_timeout looks the same, and does pass; where it was the context's deadline, the next call says so.
//
// An unexpected end of input is left to the caller: it is that of a connection, whose server was killed in mid-answer, only
// where the caller has read nothing else.
func MayPass(err error) bool {
	var fromServer *pgconn.PgError
	if errors.As(err, &fromServer) {
		switch fromServer.Code {
		case "55P03", // lock_timeout
			"25006", // a replica, which may be about to be promoted
			"25P03", // idle_in_transaction_session_timeout
			"57014": // statement_timeout, or cancelled by an operator
			return true
		}
		switch fromServer.Code[:min(2, len(fromServer.Code))] {
		case "08", // the connection
			"40", // serialization failure, deadlock
			"53", // out of memory, disk or connections
			"57", // shut down, starting up
			"58": // the system around the server
			return true
		}
		return false
	}
	var network net.Error
	var connect *pgconn.ConnectError
	switch {
	case errors.Is(err, context.Canceled):
		return false
	case errors.As(err, &connect):
		return true
	case errors.Is(err, context.DeadlineExceeded): // is a net.Error
		return false
	}
	return errors.As(err, &network) || pgconn.SafeToRetry(err)
}
