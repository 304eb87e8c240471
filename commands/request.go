package commands

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/daybook-go/daybook/ledger"
)

// request is an EnqueueOptions that keeps every bound, in the form in which it is hashed and sent. Pointers are nil
// where the request has no such field. The raw key is no longer in it.
type request struct {
	typ              string
	payload          payload
	queue            string
	priority         int32
	concurrencyKey   *string
	tags             []string
	attemptBudget    int32
	retryKind        *string
	retryInitialMS   *int64
	retryMaxMS       *int64
	runAt            *time.Time
	deadline         *time.Time
	executionTimeout *int64
	mode             *string
	scope            *string
	keyHash          []byte
	otherHashes      []byte
	keyPreview       *string
	windowMS         *int64
	maxWaitMS        *int64
	schedule         *string
	followUp         *bool
	digest           RequestDigest
}

// newRequest checks options against every bound that does not depend on the database's clock.
func newRequest(ordinal int, o EnqueueOptions, keys ledger.Keys, showPreviews bool, maxPayloadBytes int) (*request, error) {
	c := checker{ordinal: ordinal}
	r := &request{
		typ:            c.text("type", o.Type, MaxTypeBytes),
		queue:          c.text("queue", orDefault(o.Queue, DefaultQueue), MaxQueueBytes),
		priority:       c.number("priority", o.Priority, 0, MaxPriority),
		concurrencyKey: c.optionalText("concurrency_key", o.ConcurrencyKey, MaxConcurrencyKeyBytes),
		tags:           c.tags(o.Tags),
		attemptBudget:  c.number("attempt_budget", orDefault(o.AttemptBudget, DefaultAttemptBudget), 1, MaxAttemptBudget),
		runAt:          c.instant("run_at", o.RunAt),
		deadline:       c.instant("deadline", o.Deadline),
	}
	if o.RetryPolicy != nil {
		curve := o.RetryPolicy.curve()
		r.retryKind = &curve.kind
		r.retryInitialMS = c.duration("retry_policy", curve.initial, 0)
		r.retryMaxMS = c.duration("retry_policy", curve.max, 0)
		if *r.retryMaxMS < *r.retryInitialMS {
			c.refuse("retry_policy", "has a max delay below its initial delay")
		}
	}
	if o.ExecutionTimeout != 0 {
		r.executionTimeout = c.duration("execution_timeout", o.ExecutionTimeout, time.Millisecond)
	}
	if r.deadline != nil && r.runAt != nil && !r.deadline.After(*r.runAt) {
		c.refuse("deadline", "is not after run_at")
	}
	r.bind(&c, o, keys, showPreviews)
	// Last, because it is the dear one.
	if c.err == nil {
		var problem string
		if r.payload, problem = newPayload(o.Payload, maxPayloadBytes); problem != "" {
			c.refuse("payload", problem)
		}
	}
	if c.err != nil {
		return nil, c.err
	}
	r.digest = r.computeDigest()
	return r, nil
}

// bind fills in what the request's key block says, and lets go of the key.
func (r *request) bind(c *checker, o EnqueueOptions, keys ledger.Keys, showPreviews bool) {
	var (
		mode   Mode
		key    ledger.Key
		scope  string
		blocks int
	)
	if k := o.Idempotency; k != nil {
		mode, key, scope = ModeIdempotency, k.Key, k.Scope
		r.windowMS = c.duration("ttl", orDefault(k.TTL, DefaultTTL), time.Millisecond)
		blocks++
	}
	if k := o.Throttle; k != nil {
		mode, key, scope = ModeThrottle, k.Key, k.Scope
		r.windowMS = c.duration("window", k.Window, time.Millisecond)
		blocks++
	}
	if k := o.Debounce; k != nil {
		mode, key, scope = ModeDebounce, k.Key, k.Scope
		r.windowMS = c.duration("window", k.Window, time.Millisecond)
		if k.MaxWait != 0 {
			r.maxWaitMS = c.duration("max_wait", k.MaxWait, time.Millisecond)
		}
		schedule, followUp := string(orDefault(k.Schedule, ScheduleReset)), k.FollowUp
		if schedule != string(ScheduleReset) && schedule != string(SchedulePreserve) {
			c.refuse("schedule", `must be "reset" or "preserve"`)
		}
		r.schedule, r.followUp = &schedule, &followUp
		blocks++
	}
	if blocks == 0 {
		return
	}
	if blocks > 1 {
		c.refuse("mode", "is given more than once: at most one of Idempotency, Debounce and Throttle")
	}
	scope = orDefault(scope, DefaultScope)
	if problem := ledger.CheckKey(key); problem != "" {
		c.refuse("key", problem)
	}
	if problem := ledger.CheckScope(scope); problem != "" {
		c.refuse("scope", problem)
	}
	if c.err != nil {
		return
	}
	current, others := keys.Hash(scope, key)
	r.keyHash = current[:]
	for _, other := range others {
		r.otherHashes = append(r.otherHashes, other[:]...)
	}
	preview := ""
	if showPreviews {
		preview = ledger.KeyPreview(key)
	}
	word := string(mode)
	r.mode, r.scope, r.keyPreview = &word, &scope, &preview
}

// digestDomain begins everything that is hashed for a request, and digestVersion begins the digest.
const (
	digestDomain  = "daybook.request.v1\x00"
	digestVersion = 1
)

// computeDigest hashes every material field. Texts carry their length, optional fields a byte that says whether
// they are there, so that no two requests share an input.
func (r *request) computeDigest() RequestDigest {
	in := make([]byte, 0, 256+len(r.payload.canonical))
	in = append(in, digestDomain...)
	in = appendText(in, &r.typ)
	in = appendText(in, &r.queue)
	in = binary.BigEndian.AppendUint32(in, uint32(r.priority))
	in = binary.BigEndian.AppendUint32(in, uint32(r.attemptBudget))
	in = appendText(in, r.concurrencyKey)
	in = binary.BigEndian.AppendUint32(in, uint32(len(r.tags)))
	for _, tag := range r.tags {
		in = appendText(in, &tag)
	}
	in = appendText(in, r.retryKind)
	in = appendInt(in, r.retryInitialMS)
	in = appendInt(in, r.retryMaxMS)
	in = appendInstant(in, r.runAt)
	in = appendInstant(in, r.deadline)
	in = appendInt(in, r.executionTimeout)
	in = appendText(in, r.mode)
	in = appendInt(in, r.windowMS)
	in = append(in, r.payload.canonical...)
	sum := sha256.Sum256(in)
	digest := RequestDigest{digestVersion}
	copy(digest[1:], sum[:])
	return digest
}

func appendText(in []byte, s *string) []byte {
	if s == nil {
		return append(in, 0)
	}
	in = append(in, 1)
	in = binary.BigEndian.AppendUint32(in, uint32(len(*s)))
	return append(in, *s...)
}

func appendInt(in []byte, n *int64) []byte {
	if n == nil {
		return append(in, 0)
	}
	return binary.BigEndian.AppendUint64(append(in, 1), uint64(*n))
}

func appendInstant(in []byte, t *time.Time) []byte {
	if t == nil {
		return append(in, 0)
	}
	micros := t.UnixMicro()
	return appendInt(in, &micros)
}

// members renders what the request asked for as members of its event's body, as daybook.request_members does for
// whoever calls the functions directly.
func (r *request) members(traceparent *string) string {
	out := make([]byte, 0, 512)
	text := func(name string, value *string) {
		if value == nil {
			return
		}
		if len(out) > 0 {
			out = append(out, ',')
		}
		out = append(out, '"')
		out = append(out, name...)
		out = append(out, `":`...)
		// Every text of a request is valid UTF-8 by now, and only that could fail.
		out, _ = jsontext.AppendQuote(out, *value)
	}
	number := func(name string, value *int64) {
		if value != nil {
			out = append(out, `,"`...)
			out = append(out, name...)
			out = append(out, `":`...)
			out = strconv.AppendInt(out, *value, 10)
		}
	}
	priority, budget, digest := int64(r.priority), int64(r.attemptBudget), r.digest.String()
	text("type", &r.typ)
	text("queue", &r.queue)
	number("priority", &priority)
	number("attempt_budget", &budget)
	number("payload_bytes", &r.payload.size)
	text("request_digest", &digest)
	text("concurrency_key", r.concurrencyKey)
	for i, tag := range r.tags {
		if i == 0 {
			out = append(out, `,"tags":[`...)
		} else {
			out = append(out, ',')
		}
		out, _ = jsontext.AppendQuote(out, tag)
	}
	if r.tags != nil {
		out = append(out, ']')
	}
	if r.retryKind != nil {
		out = fmt.Appendf(out, `,"retry_policy":{"kind":"%s","initial_ms":%d,"max_ms":%d}`, *r.retryKind, *r.retryInitialMS, *r.retryMaxMS)
	}
	if r.deadline != nil {
		out = append(out, `,"deadline":"`...)
		out = r.deadline.AppendFormat(out, "2006-01-02T15:04:05.000000Z")
		out = append(out, '"')
	}
	number("execution_timeout_ms", r.executionTimeout)
	text("mode", r.mode)
	text("scope", r.scope)
	if r.keyHash != nil {
		keyDigest := string(ledger.KeyHash(r.keyHash).Digest())
		text("key_digest", &keyDigest)
	}
	text("key_preview", r.keyPreview)
	number("window_ms", r.windowMS)
	text("traceparent", traceparent)
	return string(out)
}

// checker keeps the first problem that it is told of.
type checker struct {
	ordinal int
	err     error
}

func (c *checker) refuse(field, problem string) {
	if c.err == nil {
		c.err = &InvalidRequestError{Ordinal: c.ordinal, Field: field, Problem: problem}
	}
}

func (c *checker) text(field, s string, maxBytes int) string {
	switch {
	case s == "":
		c.refuse(field, "is empty")
	case len(s) > maxBytes:
		c.refuse(field, fmt.Sprintf("has %d bytes, at most %d are allowed", len(s), maxBytes))
	case !utf8.ValidString(s):
		c.refuse(field, "is not valid UTF-8")
	case strings.IndexByte(s, 0) >= 0:
		c.refuse(field, "holds a NUL")
	}
	return s
}

func (c *checker) optionalText(field, s string, maxBytes int) *string {
	if s == "" {
		return nil
	}
	s = c.text(field, s, maxBytes)
	return &s
}

func (c *checker) tags(tags []string) []string {
	if len(tags) == 0 {
		return nil
	}
	set := slices.Clone(tags)
	slices.Sort(set)
	set = slices.Compact(set)
	if len(set) > MaxTags {
		c.refuse("tags", fmt.Sprintf("has %d tags, at most %d are allowed", len(set), MaxTags))
	}
	for _, tag := range set {
		c.text("tags", tag, MaxTagBytes)
	}
	return set
}

func (c *checker) number(field string, n, least, most int) int32 {
	if n < least || n > most {
		c.refuse(field, fmt.Sprintf("is %d, must be %d to %d", n, least, most))
	}
	return int32(n)
}

func (c *checker) duration(field string, d, least time.Duration) *int64 {
	ms := d.Milliseconds()
	if d < least || d.Truncate(time.Millisecond) > MaxDuration {
		c.refuse(field, fmt.Sprintf("is %v, must be %v to %v", d, least, MaxDuration))
	}
	return &ms
}

// Instants go into event bodies as RFC 3339, which has four digits for the year.
func (c *checker) instant(field string, t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC().Truncate(time.Microsecond)
	if t.Year() < 1 || t.Year() > 9999 {
		c.refuse(field, "is not in the years 1 to 9999")
	}
	return &t
}

func orDefault[T comparable](value, fallback T) T {
	var zero T
	if value == zero {
		return fallback
	}
	return value
}
