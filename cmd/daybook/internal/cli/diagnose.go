package cli

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/daybook-go/daybook/cmd/daybook/internal/show"
	"github.com/daybook-go/daybook/cmd/daybook/localpg"
	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/migrations"
)

// diagnose turns an error into one line, what to do about it, and the exit code.
func (a *app) diagnose(ctx context.Context, err error) *failure {
	var f *failure
	switch {
	case errors.As(err, &f):
		f = &failure{code: f.code, message: f.message, hint: f.hint}
	case !a.began:
		f = &failure{code: ExitUsage, message: err.Error(), hint: "see daybook help"}
	case ctx.Err() != nil:
		f = &failure{code: ExitInterrupted, message: "interrupted"}
	default:
		f = known(err)
	}
	f.message = strings.TrimPrefix(show.OneLine(f.message), "daybook: ")
	f.hint = show.OneLine(f.hint)
	return f
}

// known finds the errors that a user can do something about.
func known(err error) *failure {
	f := &failure{code: ExitFailure, message: err.Error()}
	var (
		invalid *commands.InvalidRequestError
		call    *commands.CallError
		changed *migrations.ChangedError
		epoch   *ledger.EpochError
		missing *localpg.NotFoundError
		connect *pgconn.ConnectError
		pgErr   *pgconn.PgError
	)
	switch {
	case errors.As(err, &invalid):
		f.code, f.message, f.hint = ExitUsage, "invalid request: "+invalid.Field+" "+invalid.Problem, "see daybook enqueue --help"
	case errors.As(err, &call) && call.Unknown:
		f.code, f.hint = ExitUnknown, "repeat the request with its key: what was accepted is replayed"
	case errors.As(err, &changed):
		f.hint = "nothing was changed"
	case errors.As(err, &epoch):
		f.hint = "the database was restored or rewound: its readers must be told where to go on"
	case errors.As(err, &missing):
		f.message, f.hint = notFound(missing)
	case errors.As(err, &pgErr):
		f.hint = pgHint(pgErr)
	case errors.As(err, &connect):
		f.hint = "is PostgreSQL running there? daybook dev starts one to try things on"
	}
	return f
}

func pgHint(err *pgconn.PgError) string {
	switch err.Code {
	case "3F000", "42P01", "42883", "42703":
		return "the schema is missing or older than this daybook: run daybook migrate"
	case "42501":
		return "connect as a member of daybook_operator to look, of daybook_relay to sequence and project, of daybook_app to enqueue"
	case "3D000":
		return "create the database first, for example with createdb"
	case "28P01", "28000":
		return "check user and password in the URL"
	case "53300":
		return "the server has no connection left: end some, or raise max_connections"
	}
	return ""
}

// notFound keeps an error of several lines to two.
func notFound(err *localpg.NotFoundError) (message, hint string) {
	message, rest, _ := strings.Cut(err.Error(), "\n")
	if _, install, ok := strings.Cut(rest, "Install them:\n"); ok {
		return message, "install them: " + install
	}
	return message, rest
}
