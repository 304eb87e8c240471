package outbox

import (
	"errors"
	"io"
	"net"

	"github.com/jackc/pgx/v5/pgconn"
)

// passing marks an error that is the moment's and not the projection's.
type passing struct{ error }

func (p passing) Unwrap() error { return p.error }

// mayPass says whether the same thing may succeed when it is done again: whatever has to do with the connection, the
// server or other transactions. Everything else would fail for ever.
func mayPass(err error) bool {
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
	var (
		network net.Error
		connect *pgconn.ConnectError
		moment  passing
	)
	return errors.As(err, &moment) || errors.As(err, &connect) || errors.As(err, &network) || pgconn.SafeToRetry(err)
}

// mayPassOutside is mayPass for what is done outside of folds. There an unexpected end is that of a connection, whose server
// was killed in mid-answer; in a fold it may as well be that of a body, and stays.
func mayPassOutside(err error) bool {
	return mayPass(err) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF)
}
