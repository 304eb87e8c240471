package commands

import (
	"time"

	"github.com/daybook-go/daybook/ledger"
)

// Bounds of a request, from DESIGN §4.1. Texts are counted in bytes of UTF-8 and hold no NUL.
const (
	MaxTypeBytes           = 200
	MaxQueueBytes          = 200
	MaxPriority            = 100
	MaxConcurrencyKeyBytes = 256
	MaxTags                = 20
	MaxTagBytes            = 100
	MaxAttemptBudget       = 100
	// MaxDuration bounds TTL, window, execution timeout and retry delays.
	MaxDuration = 365 * 24 * time.Hour
	// MaxPayloadDepth is how deeply arrays and objects of a payload may be nested.
	MaxPayloadDepth = 512
	// MaxBatch is how many requests one call takes.
	MaxBatch = 10_000
)

// Defaults of a request.
const (
	DefaultQueue         = "default"
	DefaultScope         = "default"
	DefaultAttemptBudget = 25
	DefaultTTL           = 24 * time.Hour
)

// EnqueueOptions is one request for work. Two requests under one key are the same when all their material fields are equal,
// payloads as JSON values and tags as a set. All fields are material, RunAt where it is given; of the key's own block its mode and
// its TTL or window, not MaxWait, Schedule and FollowUp.
type EnqueueOptions struct {
	// Type says what is to be done: 1–200 bytes, required.
	Type string
	// Payload is what it is to be done with: any value that encoding/json can marshal, or raw JSON as a
	// json.RawMessage. At most 1 MiB as PostgreSQL renders it ([Config.MaxPayloadBytes]), nested at most
	// [MaxPayloadDepth] deep, without lone surrogates, \u0000, invalid UTF-8, or numbers beyond PostgreSQL's numeric.
	// Of a repeated object key the last one counts. Nil is null.
	Payload any
	// Queue: 1–200 bytes; default "default".
	Queue string
	// Priority: 0–100, the higher the sooner; default 0.
	Priority int
	// ConcurrencyKey says what the job must not run beside: 1–256 bytes; default none. It is for the worker to keep, who gets
	// it with the job; [Queue.ClaimJobs] does not look at it.
	ConcurrencyKey string
	// Tags is a set of at most 20, each 1–100 bytes; order and repetition do not matter.
	Tags []string
	// AttemptBudget is how many attempts the job has: 1–100; default 25.
	AttemptBudget int
	// RetryPolicy is when a failed attempt is repeated; nil is PostgreSQL's default curve: after attempt n it waits n to the
	// fourth power seconds (1 s, 16 s, 81 s …), at most a day.
	RetryPolicy RetryPolicy
	// RunAt is the instant before which the job does not run, truncated to microseconds; zero is now. Where it is
	// zero it stays omitted, so that a late replay of an immediate job is still the same request.
	RunAt time.Time
	// Deadline is the instant after which the job must not begin, truncated to microseconds; zero is none. It is later
	// than RunAt and than the database's clock when the job is accepted.
	Deadline time.Time
	// ExecutionTimeout bounds one attempt: 1 ms–365 days, truncated to milliseconds; zero is none. It is for the worker to
	// keep, who gets it with the job; only the end of its lease takes a job away.
	ExecutionTimeout time.Duration
	// At most one of the three says how the request's key is used. With none the request is always accepted.
	Idempotency *Idempotency
	Debounce    *Debounce
	Throttle    *Throttle
}

// Idempotency binds a key to the accepted job for a while: the same request under it is replayed, another one is a
// conflict.
type Idempotency struct {
	// Key: 1–512 bytes of valid UTF-8, no NUL, not all white space; compared byte for byte.
	Key ledger.Key
	// Scope is the name space of the key: 1–256 bytes, likewise; default "default".
	Scope string
	// TTL is how long the key stays bound, counted from acceptance by the database's clock: 1 ms–365 days, truncated
	// to milliseconds; default 24 h. A replay does not extend it. At exactly its end the key is free.
	TTL time.Duration
}

// Debounce lets the latest request of a burst win: the first is accepted and waits for the window, later ones replace
// it as long as its job is pending (scheduled or ready, and no attempt has ever begun). A replacement keeps the job's
// ID and replaces every material field. A job that has begun is never altered.
//
// RunAt, where it is given, is the run time instead of the end of the window.
type Debounce struct {
	// Key and Scope are as those of [Idempotency].
	Key   ledger.Key
	Scope string
	// Window is how long the job waits for later requests: 1 ms–365 days, truncated to milliseconds; required.
	Window time.Duration
	// MaxWait bounds how far later requests can put the job off, counted from first acceptance: 1 ms–365 days,
	// truncated to milliseconds; zero is no bound.
	MaxWait time.Duration
	// Schedule says what a replacement does to the run time; default [ScheduleReset].
	Schedule Schedule
	// FollowUp: where the retained job has begun, or its window has elapsed, accept one further job that runs after
	// it is finished, and let later requests replace that one. Without it such a request is refused.
	FollowUp bool
}

// Schedule says what a debounced replacement does to the run time.
type Schedule string

// The schedules.
const (
	// ScheduleReset moves the run time and the end of the window to now + Window, never past first acceptance + MaxWait.
	ScheduleReset Schedule = "reset"
	// SchedulePreserve keeps both.
	SchedulePreserve Schedule = "preserve"
)

// Why a debounced request was refused: EnqueueResult.Reason of OutcomeNonReplaceable.
const (
	// ReasonIncompatibleKeyMode: the key is bound in another mode.
	ReasonIncompatibleKeyMode = "incompatible_key_mode"
	// ReasonNotPending: the retained job has begun or is finished.
	ReasonNotPending = "not_pending"
	// ReasonWindowElapsedPending: the window is over and the retained job waits for its turn.
	ReasonWindowElapsedPending = "window_elapsed_pending"
)

// Throttle lets one request through for each window: the same request again is coalesced into the first one's job,
// whatever has become of it, and writes nothing.
type Throttle struct {
	// Key and Scope are as those of [Idempotency].
	Key   ledger.Key
	Scope string
	// Window is counted from acceptance: 1 ms–365 days, truncated to milliseconds; required. At exactly its end the key
	// is free, whether or not the job has finished.
	Window time.Duration
}

// RetryPolicy is a [FixedRetry], an [ExponentialRetry] or a [DecorrelatedJitterRetry]. Its delays are 0–365 days,
// truncated to milliseconds.
type RetryPolicy interface {
	// curve returns what is stored and hashed.
	curve() retryCurve
}

type retryCurve struct {
	kind         string
	initial, max time.Duration
}

// FixedRetry waits the same time before each attempt.
type FixedRetry struct{ Delay time.Duration }

// ExponentialRetry waits Initial, then twice as long each time, at most Max. Max is not less than Initial.
type ExponentialRetry struct{ Initial, Max time.Duration }

// DecorrelatedJitterRetry waits between Initial and three times the last delay, at most Max; how long is drawn once
// for each job and attempt. Max is not less than Initial.
type DecorrelatedJitterRetry struct{ Initial, Max time.Duration }

func (p FixedRetry) curve() retryCurve { return retryCurve{"fixed", p.Delay, p.Delay} }

func (p ExponentialRetry) curve() retryCurve { return retryCurve{"exponential", p.Initial, p.Max} }

func (p DecorrelatedJitterRetry) curve() retryCurve {
	return retryCurve{"decorrelated_jitter", p.Initial, p.Max}
}
