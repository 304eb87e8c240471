package relay_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/outbox/jetstream"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// natsServer is a real NATS server with JetStream, in this process, that can be stopped and started again.
type natsServer struct {
	t       testing.TB
	options server.Options
	running *server.Server
}

func startNATS(t testing.TB) *natsServer {
	t.Helper()
	n := &natsServer{t: t, options: server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
	}}
	n.start()
	t.Cleanup(n.stop)
	return n
}

func (n *natsServer) start() {
	n.t.Helper()
	options := n.options
	s, err := server.NewServer(&options)
	if err != nil {
		n.t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(patience) {
		n.t.Fatal("NATS does not start")
	}
	n.running = s
	n.options.Port = options.Port // the same one when it is started again
}

func (n *natsServer) stop() {
	n.running.Shutdown()
	n.running.WaitForShutdown()
}

func (n *natsServer) url() string { return fmt.Sprintf("nats://127.0.0.1:%d", n.options.Port) }

// stream connects and returns what reads the stream from its beginning.
func (n *natsServer) stream() nats.JetStreamContext {
	n.t.Helper()
	conn, err := nats.Connect(n.url(), nats.MaxReconnects(-1), nats.ReconnectWait(10*time.Millisecond))
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(conn.Close)
	js, err := conn.JetStream(nats.MaxWait(patience))
	if err != nil {
		n.t.Fatal(err)
	}
	return js
}

// read returns everything that the stream holds, in its order.
func (n *natsServer) read(js nats.JetStreamContext, count int) []delivery {
	n.t.Helper()
	subscription, err := js.SubscribeSync("daybook.events.>", nats.OrderedConsumer())
	if err != nil {
		n.t.Fatal(err)
	}
	defer func() { _ = subscription.Unsubscribe() }() // an ordered consumer leaves nothing behind
	var all []delivery
	for range count {
		raw, err := subscription.NextMsg(patience)
		if err != nil {
			n.t.Fatalf("after %d of %d messages: %v", len(all), count, err)
		}
		msg := message.NewMessage(raw.Header.Get(nats.MsgIdHdr), raw.Data)
		for name := range raw.Header {
			msg.Metadata[name] = raw.Header.Get(name)
		}
		a, err := outbox.AttributesOf(msg)
		if err != nil {
			n.t.Fatal(err)
		}
		all = append(all, delivery{a, raw.Subject, msg})
	}
	return all
}

func stored(t testing.TB, js nats.JetStreamContext) uint64 {
	t.Helper()
	info, err := js.StreamInfo("DAYBOOK")
	if err != nil {
		t.Fatal(err)
	}
	return info.State.Msgs
}

func newPublisher(t testing.TB, n *natsServer) *jetstream.Publisher {
	t.Helper()
	publisher, err := jetstream.NewPublisher(jetstream.Config{
		URL: n.url(), CreateStream: "DAYBOOK", AckTimeout: time.Second, Duplicates: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = publisher.Close() }) // it returns nil
	return publisher
}

// Events arrive in JetStream in order for each key, with their bodies and attributes, and what is published twice is
// stored once.
func TestJetStream(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	n := startNATS(t)
	js := n.stream()
	const events = 300
	appendEvents(t, db, events-1, 20)
	enqueue(t, db, "an order with a real body")
	config := outbox.RelayConfig{Pool: db.Pool, Publisher: newPublisher(t, n), Poison: jetstream.Poison, PageSize: 100}
	r := start(t, config)
	waitCursor(t, db, "test", events)
	r.end()

	got := n.read(js, events)
	checkComplete(t, got, events)
	want, _, err := ledger.Read(t.Context(), db.Pool, 0, events)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range got {
		event := want[d.Position-1]
		if d.topic != outbox.Topic(event.Kind) || string(d.msg.Payload) != string(event.Body) || d.ID.String() != d.msg.UUID ||
			d.msg.Metadata[outbox.MetadataContentType] != "application/json" {
			t.Fatalf("position %d on %s, id %s: %s, %v", d.Position, d.topic, d.msg.UUID, d.msg.Payload, d.msg.Metadata)
		}
	}

	// The whole ledger once more, as after a crash before anything was acknowledged, and under another name.
	db.Exec(t, `update daybook.cursor set position = 0`)
	start(t, config)
	config.Name = "another"
	start(t, config)
	waitCursor(t, db, "test", events)
	waitCursor(t, db, "another", events)
	if n := stored(t, js); n != events {
		t.Errorf("%d messages are stored for %d events that were published three times", n, events)
	}
}

// NATS is stopped in the midst and started again: the relay goes on where it was, nothing is lost, parked or twice.
func TestJetStreamAway(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	n := startNATS(t)
	js := n.stream()
	const each, rounds = 100, 3
	publisher := newPublisher(t, n)
	start(t, outbox.RelayConfig{
		Pool: db.Pool, Publisher: publisher, Poison: jetstream.Poison, PageSize: 50, MaxBackOff: 20 * time.Millisecond,
	})
	for round := range rounds {
		appendEvents(t, db, each, 10)
		pgtest.WaitFor(t, patience, func() bool { return cursorAt(t, db, "test") > ledger.Position(round*each) }, "the relay goes on")
		n.stop()
		appendEvents(t, db, each, 10)
		n.start()
		waitCursor(t, db, "test", ledger.Position(2*(round+1)*each))
	}
	checkComplete(t, n.read(js, 2*rounds*each), 2*rounds*each)
	if got := stored(t, js); got != 2*rounds*each {
		t.Errorf("%d messages are stored for %d events", got, 2*rounds*each)
	}
	if got := parked(t, db, "test"); len(got) != 0 {
		t.Errorf("parked while NATS was away: %v", got)
	}
}

// A message that the stream finds too large is poison; a subject that no stream has is not.
func TestJetStreamPoison(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	n := startNATS(t)
	js := n.stream()
	appendEvents(t, db, 3, 0)
	db.Exec(t, `
		insert into daybook.event (recorded_at, job_id, kind, body)
		values (daybook.clock(), gen_random_uuid(), 'job.failed', json_build_object('v', 1, 'n', repeat('x', 3000)))`)
	var failures atomic.Int64
	publisher, err := jetstream.NewPublisher(jetstream.Config{URL: n.url()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = publisher.Close() }() // it returns nil
	start(t, outbox.RelayConfig{Pool: db.Pool, Publisher: publisher, MaxAttempts: 2, Poison: func(err error) bool {
		failures.Add(1)
		return jetstream.Poison(err)
	}})
	pgtest.WaitFor(t, patience, func() bool { return failures.Load() > 3 }, "publishing fails without a stream")
	if got := parked(t, db, "test"); len(got) != 0 {
		t.Errorf("parked because there is no stream: %v", got)
	}
	if _, err := js.AddStream(&nats.StreamConfig{Name: "DAYBOOK", Subjects: []string{"daybook.events.>"}, MaxMsgSize: 2000}); err != nil {
		t.Fatal(err)
	}
	waitCursor(t, db, "test", 4)
	got := parked(t, db, "test")
	if len(got) != 1 || !strings.HasPrefix(got[0], "4: 2 ") || !strings.Contains(got[0], "message size exceeds maximum allowed") {
		t.Errorf("parked: %v", got)
	}
	if _, err := js.UpdateStream(&nats.StreamConfig{Name: "DAYBOOK", Subjects: []string{"daybook.events.>"}}); err != nil {
		t.Fatal(err)
	}
	if got, err := outbox.Redrive(t.Context(), outbox.RedriveConfig{Pool: db.Pool, Relay: "test", Publisher: publisher}); err != nil || got.Published != 1 {
		t.Errorf("redriven %+v, %v", got, err)
	}
	checkComplete(t, n.read(js, 4), 4)
}

func TestJetStreamStructured(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	n := startNATS(t)
	js := n.stream()
	enqueue(t, db, "an order in an envelope")
	start(t, outbox.RelayConfig{Pool: db.Pool, Publisher: newPublisher(t, n), Format: outbox.FormatStructured})
	waitCursor(t, db, "test", 1)
	d := n.read(js, 1)[0]
	if got := d.msg.Metadata[outbox.MetadataContentType]; got != "application/cloudevents+json" {
		t.Errorf("content type %q", got)
	}
	var envelope struct {
		ID   string          `json:"id"`
		Data json.RawMessage `json:"data"`
	}
	if err := json.Unmarshal(d.msg.Payload, &envelope); err != nil {
		t.Fatal(err)
	}
	events, _, err := ledger.Read(t.Context(), db.Pool, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(events[0].Body), string(envelope.Data)); diff != "" || envelope.ID != d.msg.UUID {
		t.Errorf("id %s, UUID %s, data (-want +got):\n%s", envelope.ID, d.msg.UUID, diff)
	}
}

func TestJetStreamConfig(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"", "nats://", "http://user:pass-word@127.0.0.1", "nats://user:pass-word@127.0.0.1:1", "nats://a:1,nonsense://pass-word"} {
		_, err := jetstream.NewPublisher(jetstream.Config{URL: url})
		if err == nil || strings.Contains(err.Error(), "pass-word") {
			t.Errorf("%q: %v", url, err)
		}
	}
	for _, err := range []error{fmt.Errorf("sending: %w", nats.ErrMaxPayload), nats.ErrBadSubject, &nats.APIError{ErrorCode: 10054}} {
		if !jetstream.Poison(err) {
			t.Errorf("%v is not the message's own", err)
		}
	}
	for _, err := range []error{
		&nats.APIError{ErrorCode: 10077, Code: 503}, nats.ErrTimeout, nats.ErrNoStreamResponse, nats.ErrConnectionClosed,
		nats.ErrReconnectBufExceeded, errors.New("whatever else a server may say one day"),
	} {
		if jetstream.Poison(err) {
			t.Errorf("%v is taken for the message's own", err)
		}
	}
}
