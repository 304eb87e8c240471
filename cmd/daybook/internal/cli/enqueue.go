package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/daybook-go/daybook/cmd/daybook/internal/show"
	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
)

func (a *app) enqueueCommand() *cobra.Command {
	var f enqueueFlags
	cmd := &cobra.Command{
		Use:     "enqueue --type TYPE",
		Short:   "Ask for one job, and tell what PostgreSQL decided",
		GroupID: groupAct,
		Long: `Asks for one job in a transaction of its own and writes what PostgreSQL decided, always as JSON.

The key is read from standard input, a file or an environment variable; one line break at its end does not belong to
it. Without a key the request is always accepted. The payload is read from a file or from standard input; without
one it is null.

The exit code is 0 where the request was accepted or replayed and 3 on a conflict, which is recorded in the ledger.`,
		Example: `  pwgen | daybook enqueue --type email.welcome --key-stdin --payload-file welcome.json
  ORDER_KEY=… daybook enqueue --type order.place --key-env ORDER_KEY --secret-file hmac.secret --payload-stdin < order.json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := refuseZeros(cmd.Flags()); err != nil {
				return err
			}
			return a.enqueue(cmd.Context(), &f)
		},
	}
	f.add(cmd.Flags())
	return cmd
}

func (a *app) enqueue(ctx context.Context, f *enqueueFlags) error {
	options, err := a.enqueueOptions(f)
	if err != nil {
		return err
	}
	keys, err := a.keys(&f.key)
	if err != nil {
		return err
	}
	return a.withPool(ctx, func(pool *pgxpool.Pool) error {
		queue, err := commands.NewQueue(commands.Config{
			Pool: pool, Keys: keys, HidePreviews: f.hidePreview, MaxPayloadBytes: f.maxPayloadBytes,
		})
		if err != nil {
			return &failure{code: ExitUsage, message: err.Error(), cause: err}
		}
		result, err := queue.Decide(ctx, options)
		if err != nil {
			return err
		}
		if err := show.Document(a.Stdout, newDecision(result, options, keys, !f.hidePreview)); err != nil {
			return err
		}
		if result.Conflict != nil {
			return &failure{
				code: ExitConflict, message: result.Conflict.Error(), cause: result.Conflict,
				hint: "use another key for other work, or send what was sent first; daybook keys explain shows the key's timeline",
			}
		}
		return nil
	})
}

// enqueueOptions turns the flags into a request.
func (a *app) enqueueOptions(f *enqueueFlags) (commands.EnqueueOptions, error) {
	options := commands.EnqueueOptions{
		Type: f.typ, Queue: f.queue, Priority: f.priority, ConcurrencyKey: f.concurrencyKey, Tags: f.tags,
		AttemptBudget: f.attemptBudget, ExecutionTimeout: f.executionTimeout,
	}
	var err error
	if options.RetryPolicy, err = f.retryPolicy(); err != nil {
		return options, err
	}
	if options.RunAt, err = instant("--run-at", f.runAt); err != nil {
		return options, err
	}
	if options.Deadline, err = instant("--deadline", f.deadline); err != nil {
		return options, err
	}
	if f.key.stdin && f.payloadStdin {
		return options, usagef("read one of them from a file", "key and payload cannot both come from standard input")
	}
	switch {
	case f.key.given() > 0:
		key, err := a.key(&f.key)
		if err != nil {
			return options, err
		}
		options.Idempotency = &commands.Idempotency{Key: key, Scope: f.scope, TTL: f.ttl}
	case f.scope != "" || f.ttl != 0:
		return options, usagef("name its source: --key-stdin, --key-file or --key-env", "--scope and --ttl are about a key, and there is none")
	}
	options.Payload, err = a.payload(f)
	return options, err
}

// payload reads the payload as it is: whether it is JSON is for commands to say.
func (a *app) payload(f *enqueueFlags) (any, error) {
	// As much as a text can have whose rendering keeps the limit, and one byte more.
	const maxBytes = 8*commands.LimitMaxPayloadBytes + 1
	switch {
	case f.payloadStdin && f.payloadFile != "":
		return nil, usagef("", "use either --payload-file or --payload-stdin")
	case f.payloadStdin:
		raw, err := readAtMost(a.Stdin, maxBytes)
		if err != nil {
			return nil, fmt.Errorf("read the payload: %w", err)
		}
		return json.RawMessage(raw), nil
	case f.payloadFile != "":
		file, err := os.Open(f.payloadFile)
		if err != nil {
			return nil, fmt.Errorf("read the payload: %w", err)
		}
		defer func() { _ = file.Close() }()
		raw, err := readAtMost(file, maxBytes)
		if err != nil {
			return nil, fmt.Errorf("read the payload: %w", err)
		}
		return json.RawMessage(raw), nil
	}
	return nil, nil
}

// decision is what enqueue writes.
type decision struct {
	JobID      uuid.UUID               `json:"job_id"`
	Outcome    commands.EnqueueOutcome `json:"outcome"`
	Reason     string                  `json:"reason,omitempty"`
	Scope      string                  `json:"scope,omitempty"`
	KeyDigest  ledger.KeyDigest        `json:"key_digest,omitempty"`
	KeyPreview string                  `json:"key_preview,omitempty"`
	BoundAt    time.Time               `json:"bound_at"`
	ExpiresAt  *time.Time              `json:"expires_at,omitempty"`
	Conflict   *conflictDecision       `json:"conflict,omitempty"`
}

type conflictDecision struct {
	Fields                []string               `json:"fields"`
	ExistingJobState      commands.JobState      `json:"existing_job_state"`
	ExistingMode          commands.Mode          `json:"existing_mode"`
	RequestDigest         commands.RequestDigest `json:"request_digest"`
	ExistingRequestDigest commands.RequestDigest `json:"existing_request_digest"`
}

func newDecision(result commands.EnqueueResult, options commands.EnqueueOptions, keys ledger.Keys, showPreview bool) decision {
	d := decision{JobID: result.JobID, Outcome: result.Outcome, Reason: result.Reason, BoundAt: result.BoundAt}
	if k := options.Idempotency; k != nil {
		d.Scope = k.Scope
		if d.Scope == "" {
			d.Scope = commands.DefaultScope
		}
		current, _ := keys.Hash(d.Scope, k.Key)
		d.KeyDigest = current.Digest()
		if showPreview {
			d.KeyPreview = ledger.KeyPreview(k.Key)
		}
		d.ExpiresAt = &result.ExpiresAt
	}
	if c := result.Conflict; c != nil {
		// The owner's: during a rotation it may be bound under another secret.
		d.KeyDigest, d.KeyPreview = c.KeyDigest, c.KeyPreview
		d.Conflict = &conflictDecision{
			Fields: c.Fields, ExistingJobState: c.State, ExistingMode: c.Mode,
			RequestDigest: c.RequestDigest, ExistingRequestDigest: c.ExistingRequestDigest,
		}
	}
	return d
}
