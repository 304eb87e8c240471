package commands

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/daybook-go/daybook/ledger"
)

func full() EnqueueOptions {
	return EnqueueOptions{
		Type:             "order.place",
		Payload:          json.RawMessage(`{"order":1}`),
		Queue:            "orders",
		Priority:         7,
		ConcurrencyKey:   "customer 5",
		Tags:             []string{"b", "a", "b"},
		AttemptBudget:    3,
		RetryPolicy:      ExponentialRetry{Initial: time.Second, Max: time.Minute},
		RunAt:            time.Date(2030, 1, 2, 3, 4, 5, 6000, time.UTC),
		Deadline:         time.Date(2030, 2, 2, 3, 4, 5, 6000, time.UTC),
		ExecutionTimeout: time.Minute,
		Idempotency:      &Idempotency{Key: ledger.NewKey("order 1"), Scope: "shop", TTL: time.Hour},
	}
}

func mustRequest(t *testing.T, o EnqueueOptions) *request {
	t.Helper()
	r, err := newRequest(0, o, ledger.Keys{}, true, DefaultMaxPayloadBytes)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// §4.2: stored digests are compared with those of later builds, so the digest of a version never changes.
func TestRequestDigestIsStable(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		options EnqueueOptions
		want    string
	}{
		{"least", EnqueueOptions{Type: "a"}, "01b15a166a0fb40740c9af2e5f91dfb78c3129074b3feadd079dcba3bbb4a9d41f"},
		{"full", full(), "01f18bd127a55bd2078f9e63303b8299aa69e3b04aadff36d90faf5556fec85189"},
	} {
		if got := mustRequest(t, test.options).digest.String(); got != test.want {
			t.Errorf("%s: got %s, want %s", test.name, got, test.want)
		}
	}
}

// §4.2: the material fields, exactly.
func TestRequestDigestCoversMaterialFields(t *testing.T) {
	t.Parallel()
	base := mustRequest(t, full()).digest
	for name, change := range map[string]func(*EnqueueOptions){
		"type":              func(o *EnqueueOptions) { o.Type = "order.cancel" },
		"payload":           func(o *EnqueueOptions) { o.Payload = json.RawMessage(`{"order":"1"}`) },
		"queue":             func(o *EnqueueOptions) { o.Queue = "other" },
		"priority":          func(o *EnqueueOptions) { o.Priority++ },
		"concurrency key":   func(o *EnqueueOptions) { o.ConcurrencyKey = "" },
		"tags":              func(o *EnqueueOptions) { o.Tags = []string{"ab"} },
		"attempt budget":    func(o *EnqueueOptions) { o.AttemptBudget++ },
		"retry kind":        func(o *EnqueueOptions) { o.RetryPolicy = DecorrelatedJitterRetry{time.Second, time.Minute} },
		"retry initial":     func(o *EnqueueOptions) { o.RetryPolicy = ExponentialRetry{2 * time.Second, time.Minute} },
		"retry max":         func(o *EnqueueOptions) { o.RetryPolicy = ExponentialRetry{time.Second, 2 * time.Minute} },
		"no retry":          func(o *EnqueueOptions) { o.RetryPolicy = nil },
		"run at":            func(o *EnqueueOptions) { o.RunAt = o.RunAt.Add(time.Microsecond) },
		"no run at":         func(o *EnqueueOptions) { o.RunAt = time.Time{} },
		"deadline":          func(o *EnqueueOptions) { o.Deadline = o.Deadline.Add(time.Microsecond) },
		"execution timeout": func(o *EnqueueOptions) { o.ExecutionTimeout += time.Millisecond },
		"ttl":               func(o *EnqueueOptions) { o.Idempotency.TTL += time.Millisecond },
		"no key":            func(o *EnqueueOptions) { o.Idempotency = nil },
		"mode": func(o *EnqueueOptions) {
			o.Throttle = &Throttle{Key: o.Idempotency.Key, Scope: "shop", Window: time.Hour}
			o.Idempotency = nil
		},
	} {
		o := full()
		change(&o)
		if mustRequest(t, o).digest == base {
			t.Errorf("%s is not in the digest", name)
		}
	}
	for name, change := range map[string]func(*EnqueueOptions){
		"tags in another order":       func(o *EnqueueOptions) { o.Tags = []string{"a", "b"} },
		"the payload's white space":   func(o *EnqueueOptions) { o.Payload = json.RawMessage(` { "order" : 1.0 } `) },
		"run at in another zone":      func(o *EnqueueOptions) { o.RunAt = o.RunAt.In(time.FixedZone("", 9*3600)) },
		"run at's nanoseconds":        func(o *EnqueueOptions) { o.RunAt = o.RunAt.Add(999) },
		"deadline's nanoseconds":      func(o *EnqueueOptions) { o.Deadline = o.Deadline.Add(999) },
		"the timeout's microseconds":  func(o *EnqueueOptions) { o.ExecutionTimeout += 999 * time.Microsecond },
		"the TTL's microseconds":      func(o *EnqueueOptions) { o.Idempotency.TTL += 999 * time.Microsecond },
		"the policy's microseconds":   func(o *EnqueueOptions) { o.RetryPolicy = ExponentialRetry{time.Second + 999, time.Minute + 999} },
		"the key, which is not asked": func(o *EnqueueOptions) { o.Idempotency.Key = ledger.NewKey("order 2") },
		"the scope likewise":          func(o *EnqueueOptions) { o.Idempotency.Scope = "other" },
	} {
		o := full()
		change(&o)
		if mustRequest(t, o).digest != base {
			t.Errorf("%s changes the digest", name)
		}
	}
}

// A default and what it stands for are the same request.
func TestDefaults(t *testing.T) {
	t.Parallel()
	key := ledger.NewKey("k")
	short := EnqueueOptions{Type: "a", Idempotency: &Idempotency{Key: key}}
	long := EnqueueOptions{
		Type: "a", Payload: json.RawMessage("null"), Queue: "default", AttemptBudget: 25, Tags: []string{},
		Idempotency: &Idempotency{Key: key, Scope: "default", TTL: 24 * time.Hour},
	}
	a, b := mustRequest(t, short), mustRequest(t, long)
	if diff := cmp.Diff(a, b, cmp.AllowUnexported(request{}, payload{})); diff != "" {
		t.Errorf("(-short +long):\n%s", diff)
	}
}

// Only the caller's intention is truncated, never a value into its bounds.
func TestTruncation(t *testing.T) {
	t.Parallel()
	o := full()
	o.RunAt = time.Date(2030, 1, 2, 23, 59, 59, 999_999_999, time.FixedZone("", -5*3600))
	o.Deadline = o.RunAt.Add(time.Hour)
	o.ExecutionTimeout = 1999 * time.Microsecond
	o.RetryPolicy = ExponentialRetry{Initial: 1900 * time.Microsecond, Max: 1100 * time.Microsecond}
	r := mustRequest(t, o)
	if want := time.Date(2030, 1, 3, 4, 59, 59, 999_999_000, time.UTC); !r.runAt.Equal(want) || r.runAt.Location() != time.UTC {
		t.Errorf("run at %v, want %v", r.runAt, want)
	}
	if *r.executionTimeout != 1 || *r.retryInitialMS != 1 || *r.retryMaxMS != 1 {
		t.Errorf("timeout %d ms, delays %d and %d ms, want 1 each", *r.executionTimeout, *r.retryInitialMS, *r.retryMaxMS)
	}
	o.ExecutionTimeout = 999 * time.Microsecond
	var invalid *InvalidRequestError
	if _, err := newRequest(3, o, ledger.Keys{}, true, 100); !errors.As(err, &invalid) || invalid.Field != "execution_timeout" || invalid.Ordinal != 3 {
		t.Errorf("a timeout of 999 µs: %v", err)
	}
}

// An error names the field and the bound, and nothing of the value.
func TestInvalidRequestErrorHoldsNoValue(t *testing.T) {
	t.Parallel()
	const secret = "5ecret"
	long := strings.Repeat(secret, 200)
	for _, change := range []func(*EnqueueOptions){
		func(o *EnqueueOptions) { o.Type = long },
		func(o *EnqueueOptions) { o.Queue = long },
		func(o *EnqueueOptions) { o.Tags = []string{long} },
		func(o *EnqueueOptions) { o.ConcurrencyKey = secret + "\xff" },
		func(o *EnqueueOptions) { o.Payload = json.RawMessage(secret) },
		func(o *EnqueueOptions) { o.Payload = json.RawMessage(`{"` + secret + `":"\ud800"}`) },
		func(o *EnqueueOptions) { o.Idempotency.Key = ledger.NewKey(long) },
		func(o *EnqueueOptions) { o.Idempotency.Scope = long },
		func(o *EnqueueOptions) {
			o.Debounce = &Debounce{Key: ledger.NewKey("k"), Window: 1, Schedule: secret}
			o.Idempotency = nil
		},
	} {
		o := full()
		change(&o)
		_, err := newRequest(0, o, ledger.Keys{}, true, 1000)
		var invalid *InvalidRequestError
		if !errors.As(err, &invalid) || strings.Contains(err.Error(), secret) || strings.Contains(invalid.Problem, secret) {
			t.Errorf("%#v", err)
		}
	}
}

// No two different requests are hashed alike, however their texts are cut into fields.
func FuzzRequestDigest(f *testing.F) {
	f.Add("a", "b", "c", "d", "e", "ab", "", "c", "de", "")
	f.Add("a", "", "\x01", "x", "y", "a", "", "\x00", "x", "y")
	f.Fuzz(func(t *testing.T, type1, queue1, concurrency1, tag1, tag2, type2, queue2, concurrency2, tag3, tag4 string) {
		build := func(typ, queue, concurrency string, tags ...string) *request {
			c := checker{}
			r := &request{
				typ: c.text("type", typ, 200), queue: c.text("queue", queue, 200), concurrencyKey: c.optionalText("", concurrency, 256),
				tags: c.tags(tags), payload: payload{canonical: []byte("null")},
			}
			if c.err != nil {
				return nil
			}
			return r
		}
		a, b := build(type1, queue1, concurrency1, tag1, tag2), build(type2, queue2, concurrency2, tag3, tag4)
		if a == nil || b == nil {
			return
		}
		same := cmp.Equal(a, b, cmp.AllowUnexported(request{}, payload{}))
		if got := a.computeDigest() == b.computeDigest(); got != same {
			t.Errorf("%+v and %+v: equal %v, equal digests %v", a, b, same, got)
		}
	})
}

// A set of tags that travels as the text of an array arrives as it was.
func FuzzArrayText(f *testing.F) {
	f.Add("a,b", `{"x"}`, ` \N null `)
	f.Add("NULL", `\"`, "\t\n")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		want := []string{a, b, c}
		var check checker
		if check.tags(want); check.err != nil {
			return
		}
		var got []string
		if err := pgtype.NewMap().Scan(pgtype.TextArrayOID, pgtype.TextFormatCode, []byte(*arrayText(want)), &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	})
}
