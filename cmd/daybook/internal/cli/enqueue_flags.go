package cli

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/daybook-go/daybook/commands"
)

// enqueueFlags are all fields of commands.EnqueueOptions.
type enqueueFlags struct {
	typ, queue, concurrencyKey string
	priority, attemptBudget    int
	tags                       []string
	retryKind                  string
	retryInitial, retryMax     time.Duration
	runAt, deadline            string
	executionTimeout           time.Duration
	payloadFile                string
	payloadStdin               bool
	maxPayloadBytes            int
	key                        keyFlags
	scope                      string
	ttl                        time.Duration
	hidePreview                bool
}

func (f *enqueueFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.typ, "type", "", "what is to be done (required)")
	flags.StringVar(&f.queue, "queue", "", `queue (default "default")`)
	flags.IntVar(&f.priority, "priority", 0, "0 to 100, the higher the sooner")
	flags.StringVar(&f.concurrencyKey, "concurrency-key", "", "concurrency key")
	flags.StringArrayVar(&f.tags, "tag", nil, "a tag; repeat it for more")
	flags.IntVar(&f.attemptBudget, "attempt-budget", 0, "how many attempts the job has, 1 to 100 (default 25)")
	flags.StringVar(&f.retryKind, "retry-kind", "", "when attempts are repeated: fixed, exponential or decorrelated_jitter")
	flags.DurationVar(&f.retryInitial, "retry-initial", 0, "delay of the first repetition; of each with fixed")
	flags.DurationVar(&f.retryMax, "retry-max", 0, "longest delay; not with fixed")
	flags.StringVar(&f.runAt, "run-at", "", "not before this instant, as 2030-01-31T12:00:00Z")
	flags.StringVar(&f.deadline, "deadline", "", "not begun after this instant, likewise")
	flags.DurationVar(&f.executionTimeout, "execution-timeout", 0, "bound of one attempt")
	flags.StringVar(&f.payloadFile, "payload-file", "", "read the payload, one JSON value, from a file")
	flags.BoolVar(&f.payloadStdin, "payload-stdin", false, "read the payload from standard input")
	flags.IntVar(&f.maxPayloadBytes, "max-payload-bytes", 0, "bound of the payload, up to 16 MiB (default 1 MiB)")
	f.key.add(flags)
	flags.StringVar(&f.scope, "scope", "", `name space of the key (default "default")`)
	flags.DurationVar(&f.ttl, "ttl", 0, "how long the key stays bound (default 24h)")
	flags.BoolVar(&f.hidePreview, "hide-preview", false, "store an empty preview of the key")
}

// refuseZeros refuses flags that were given with the value that stands for "not given": the request would have the
// default, which is not what the command line says.
func refuseZeros(flags *pflag.FlagSet) error {
	for _, name := range []string{"queue", "concurrency-key", "attempt-budget", "execution-timeout", "max-payload-bytes", "scope", "ttl"} {
		flag := flags.Lookup(name)
		if flag.Changed && flag.Value.String() == flag.DefValue {
			return usagef("leave it out for the default", "--%s is empty or zero", name)
		}
	}
	return nil
}

func (f *enqueueFlags) retryPolicy() (commands.RetryPolicy, error) {
	switch f.retryKind {
	case "":
		if f.retryInitial != 0 || f.retryMax != 0 {
			return nil, usagef("", "--retry-initial and --retry-max need --retry-kind")
		}
		return nil, nil
	case "fixed":
		if f.retryMax != 0 {
			return nil, usagef("", "--retry-max has no meaning with --retry-kind fixed")
		}
		return commands.FixedRetry{Delay: f.retryInitial}, nil
	case "exponential":
		return commands.ExponentialRetry{Initial: f.retryInitial, Max: f.retryMax}, nil
	case "decorrelated_jitter":
		return commands.DecorrelatedJitterRetry{Initial: f.retryInitial, Max: f.retryMax}, nil
	}
	return nil, usagef("it is one of fixed, exponential, decorrelated_jitter", "unknown --retry-kind %q", f.retryKind)
}

func instant(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return time.Time{}, usagef("for example 2026-01-31T23:59:59Z", "%s is not an instant in RFC 3339", flag)
	}
	if t.IsZero() {
		return time.Time{}, usagef("", "%s is out of bounds", flag)
	}
	return t, nil
}
