package commands_test

import (
	"encoding/json"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
)

// asked is a request as the model sees it: what it asks for, by material field, under which key. Payloads that are equal as
// values are equal here, however they are written.
type asked struct {
	Key    string // "" for none
	Mode   commands.Mode
	Window time.Duration // or TTL
	Fields map[string]string
	RunAt  time.Time

	payload string
	tags    []string
}

var payloads = map[string][]string{
	"one": {`{"a":1,"b":[1]}`, `{ "b" : [1.0], "a" : 1e0 }`, `{"a":2,"b":[10e-1],"a":1}`},
	"two": {`{"a":1,"b":[2]}`},
}

// anyRequest draws a request over few keys and few variants, so that it often meets an equal one, and often one that is not.
func anyRequest(t *rapid.T) asked {
	often := func(label string) bool { return rapid.IntRange(0, 4).Draw(t, label) > 0 }
	a := asked{
		Key:    rapid.SampledFrom([]string{"a", "b", "c", "a", "b", "c", "a", "b", ""}).Draw(t, "key"),
		Fields: map[string]string{"payload": "one", "priority": "0", "tags": "", "run_at": "", "concurrency_key": ""},
	}
	if !often("the usual payload") {
		a.Fields["payload"] = "two"
	}
	a.payload = rapid.SampledFrom(payloads[a.Fields["payload"]]).Draw(t, "payload")
	if !often("the usual priority") {
		a.Fields["priority"] = "9"
	}
	if !often("no tags") {
		a.tags = rapid.SampledFrom([][]string{{"x", "y"}, {"y", "x", "y"}}).Draw(t, "tags")
		a.Fields["tags"] = "x y"
	}
	if !often("no run at") {
		a.RunAt = time.Date(2999, 1, 1, 0, 0, 0, 0, time.UTC)
		a.Fields["run_at"] = "later"
	}
	if !often("no concurrency key") {
		a.Fields["concurrency_key"] = "c"
	}
	if a.Key == "" {
		return a
	}
	a.Mode, a.Window = commands.ModeIdempotency, time.Hour
	if !often("idempotency") {
		a.Mode = commands.ModeThrottle
	}
	if !often("the usual window") {
		a.Window = 2 * time.Hour
	}
	a.Fields["mode"] = string(a.Mode)
	a.Fields[windowField(a.Mode)] = a.Window.String()
	return a
}

// windowField is what the window of a mode is called.
func windowField(mode commands.Mode) string {
	if mode == commands.ModeIdempotency {
		return "ttl"
	}
	return "window"
}

// options are the request as the API takes it.
func (a asked) options(scope string) commands.EnqueueOptions {
	o := commands.EnqueueOptions{
		Type: "model", Payload: json.RawMessage(a.payload), Tags: a.tags, RunAt: a.RunAt, ConcurrencyKey: a.Fields["concurrency_key"],
	}
	if a.Fields["priority"] == "9" {
		o.Priority = 9
	}
	switch a.Mode {
	case commands.ModeIdempotency:
		o.Idempotency = &commands.Idempotency{Key: ledger.NewKey(a.Key), Scope: scope, TTL: a.Window}
	case commands.ModeThrottle:
		o.Throttle = &commands.Throttle{Key: ledger.NewKey(a.Key), Scope: scope, Window: a.Window}
	}
	return o
}

// differing are the fields in which two requests differ, over the union of both, sorted.
func differing(a, b asked) []string {
	var fields []string
	for _, one := range []asked{a, b} {
		for field := range one.Fields {
			if a.Fields[field] != b.Fields[field] && !slices.Contains(fields, field) {
				fields = append(fields, field)
			}
		}
	}
	slices.Sort(fields)
	return fields
}
