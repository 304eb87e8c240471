package relay_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/tests/pgtest"
)

var update = flag.Bool("update", false, "write the golden files in testdata anew")

// everyKind is what events there can be.
var everyKind = []ledger.Kind{
	ledger.KindAccepted, ledger.KindReplaced, ledger.KindNonReplaceable, ledger.KindConflictRejected,
	ledger.KindBindingExpired, ledger.KindBindingReleased, ledger.KindJobStarted, ledger.KindJobSucceeded,
	ledger.KindJobAttemptFailed, ledger.KindJobFailed, ledger.KindJobLeaseExpired, ledger.KindJobCancelled,
	ledger.KindJobPurged, ledger.KindJobReleased, ledger.KindJobRedriven,
}

// TestBodies makes every kind of event by the front door, in each of its shapes, compares the bodies with the golden
// file, and validates them with their schemas, and with those that the AsyncAPI document has.
func TestBodies(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	db.FreezeClock(t, time.Date(2026, 3, 1, 12, 0, 0, 250_000, time.UTC))
	live(t, db)
	if _, err := ledger.Sequence(t.Context(), db.Pool); err != nil {
		t.Fatal(err)
	}
	events, _, err := ledger.Read(t.Context(), db.Pool, 0, 1000)
	if err != nil {
		t.Fatal(err)
	}

	own, inDocument := ownSchemas(t), documentSchemas(t)
	seen := map[ledger.Kind]bool{}
	var text bytes.Buffer
	for _, event := range events {
		seen[event.Kind] = true
		fmt.Fprintf(&text, "%d %s %s\n", event.Position, event.Kind, event.Body)
		for where, schemas := range map[string]map[ledger.Kind]*jsonschema.Schema{"its schema": own, "the AsyncAPI document": inDocument} {
			if err := validate(schemas[event.Kind], event.Body); err != nil {
				t.Errorf("position %d, %s, does not fit %s: %v\n%s", event.Position, event.Kind, where, err, event.Body)
			}
		}
		checkSchema(t, own[event.Kind], event)
	}
	for _, kind := range everyKind {
		if !seen[kind] {
			t.Errorf("no event of kind %s was made", kind)
		}
	}
	golden(t, "bodies.txt", numbered(text.Bytes()))
}

// live lets jobs and keys live every life that leaves an event. The clock stands still but for where it is moved.
func live(t *testing.T, db *pgtest.DB) {
	t.Helper()
	l := life{t: t, db: db, queue: newQueue(t, db), act: commands.Act{Actor: "jona", Reason: "asked by the customer"}}
	debounce := func(key string, payload int, change func(*commands.Debounce)) commands.EnqueueOptions {
		d := &commands.Debounce{Key: ledger.NewKey(key), Window: time.Minute, MaxWait: time.Hour}
		if change != nil {
			change(d)
		}
		return commands.EnqueueOptions{Type: "index", Payload: payload, Debounce: d}
	}
	idempotent := func(key string, payload int) commands.EnqueueOptions {
		return commands.EnqueueOptions{Type: "charge", Payload: payload, Idempotency: &commands.Idempotency{Key: ledger.NewKey(key), TTL: time.Hour}}
	}

	// An attempt that succeeds; one that fails twice and is redriven; one whose worker is lost.
	l.decide(commands.EnqueueOptions{Type: "report"})
	if _, err := l.queue.CompleteJobs(t.Context(), l.claim("", time.Minute)); err != nil {
		t.Fatal(err)
	}
	twice := idempotent("order-2026-000481", 1)
	twice.AttemptBudget = 2
	failed := l.decide(twice)
	l.fail(l.claim("", time.Minute))
	db.AdvanceClock(t, time.Second)
	l.fail(l.claim("", time.Minute))
	if _, _, err := l.queue.RedriveJob(t.Context(), failed, l.act, "redrive-1"); err != nil {
		t.Fatal(err)
	}
	l.decide(commands.EnqueueOptions{Type: "lost", Queue: "lost", AttemptBudget: 1})
	l.claim("lost", time.Second)
	db.AdvanceClock(t, time.Second)
	if n, err := l.queue.ExpireLeases(t.Context(), 10); n != 1 || err != nil {
		t.Fatalf("%d leases expired, %v", n, err)
	}

	// The same key for other work, and the key found expired.
	l.decide(idempotent("order-2026-000481", 2))
	db.AdvanceClock(t, time.Hour)
	l.decide(idempotent("order-2026-000481", 2))

	// A debounced job: replaced, then let run by an operator. One whose window is over while it waits, one that has begun
	// and gets a follow-up, and one whose key is used in another mode.
	first := l.decide(debounce("customer-0000019", 1, nil))
	l.decide(debounce("customer-0000019", 2, nil))
	if err := l.queue.RunJobNow(t.Context(), first, l.act); err != nil {
		t.Fatal(err)
	}
	l.decide(debounce("customer-0000020", 1, nil))
	db.AdvanceClock(t, time.Minute)
	l.decide(debounce("customer-0000020", 2, nil))
	early := debounce("customer-0000021", 1, nil)
	early.RunAt, early.Queue = db.Clock(t).Add(time.Second), "early"
	l.decide(early)
	db.AdvanceClock(t, time.Second)
	l.claim("early", time.Hour)
	l.decide(debounce("customer-0000021", 2, nil))
	l.decide(debounce("customer-0000021", 3, func(d *commands.Debounce) { d.FollowUp = true }))
	l.decide(debounce("order-2026-000481", 1, nil))

	// Cancelled by an operator, and by its deadline; purged with its key.
	if err := l.queue.CancelJob(t.Context(), l.decide(commands.EnqueueOptions{Type: "report"}), l.act); err != nil {
		t.Fatal(err)
	}
	l.decide(commands.EnqueueOptions{Type: "late", Queue: "late", Deadline: db.Clock(t).Add(time.Second)})
	db.AdvanceClock(t, time.Second)
	if jobs, err := l.queue.ClaimJobs(t.Context(), commands.ClaimOptions{Queue: "late", Worker: "worker-7"}); len(jobs) != 0 || err != nil {
		t.Fatalf("claimed %v, %v", jobs, err)
	}
	purged := idempotent("order-2026-000482", 1)
	purged.Queue = "purged"
	l.decide(purged)
	if n, err := l.queue.Purge(t.Context(), "purged", l.act, "purge-1"); n != 1 || err != nil {
		t.Fatalf("%d jobs purged, %v", n, err)
	}
}

type life struct {
	t     *testing.T
	db    *pgtest.DB
	queue *commands.Queue
	act   commands.Act
}

func (l life) decide(options commands.EnqueueOptions) uuid.UUID {
	l.t.Helper()
	result, err := l.queue.Decide(l.t.Context(), options)
	var conflict *commands.EnqueueIdempotencyConflictError
	if err != nil && !errors.As(err, &conflict) {
		l.t.Fatal(err)
	}
	return result.JobID
}

func (l life) claim(queue string, lease time.Duration) commands.Claim {
	l.t.Helper()
	jobs, err := l.queue.ClaimJobs(l.t.Context(), commands.ClaimOptions{Queue: queue, Worker: "worker-7", Lease: lease})
	if err != nil || len(jobs) != 1 {
		l.t.Fatalf("claimed %v, %v", jobs, err)
	}
	return jobs[0].Claim
}

func (l life) fail(claim commands.Claim) {
	l.t.Helper()
	if _, err := l.queue.FailJob(l.t.Context(), claim, "no route to host"); err != nil {
		l.t.Fatal(err)
	}
}

// checkSchema takes each required member away, spoils each member, and looks for members that the schema does not name.
func checkSchema(t *testing.T, schema *jsonschema.Schema, event ledger.Event) {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(event.Body, &members); err != nil {
		t.Fatal(err)
	}
	check := func(what string, valid bool) {
		body, err := json.Marshal(members)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate(schema, body); (err == nil) != valid {
			t.Errorf("the schema of %s %s: %v", event.Kind, what, err)
		}
	}
	for _, name := range schema.Required {
		value := members[name]
		delete(members, name)
		check("admits a body without "+name, false)
		members[name] = value
	}
	for name, value := range members {
		if schema.Properties[name] == nil {
			t.Errorf("the schema of %s does not know %s", event.Kind, name)
		}
		members[name] = json.RawMessage(`{"wrong":true}`)
		check("admits any "+name, false)
		members[name] = value
	}
	members["from_the_future"] = json.RawMessage(`[1]`)
	check("refuses a member of a later version", true)
}

func validate(schema *jsonschema.Schema, body []byte) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return err
	}
	return schema.Validate(value)
}

func ownSchemas(t *testing.T) map[ledger.Kind]*jsonschema.Schema {
	t.Helper()
	all := map[ledger.Kind]*jsonschema.Schema{}
	for _, kind := range everyKind {
		text, ok := outbox.Schema(kind)
		if !ok {
			t.Fatalf("%s has no schema", kind)
		}
		all[kind] = compile(t, "urn:daybook:schema:"+string(kind)+":1", text, "")
	}
	return all
}

// compile compiles a schema that stands somewhere in a document.
func compile(t *testing.T, name string, document []byte, at string) *jsonschema.Schema {
	t.Helper()
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(document))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.AssertFormat()
	if err := compiler.AddResource(name, value); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile(name + at)
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

var uuids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

// numbered replaces UUIDs, which are others in each run, by numbers in the order in which they appear.
func numbered(text []byte) []byte {
	var seen []string
	return uuids.ReplaceAllFunc(text, func(id []byte) []byte {
		if !slices.Contains(seen, string(id)) {
			seen = append(seen, string(id))
		}
		return fmt.Appendf(nil, "00000000-0000-7000-8000-%012d", slices.Index(seen, string(id))+1)
	})
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (write it with -update)", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got; -update writes it anew):\n%s", name, diff)
	}
}
