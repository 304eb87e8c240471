package outbox_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// TestWatermillConformance is Watermill's own suite for publishers and subscribers, against our Subscriber as it is. What the suite
// publishes is enqueued, as work whose event carries the suite's message. Its topics are made up as it goes, so each is
// a ledger of its own, whose one topic is TopicAll.
//
// What is not claimed. Exactly once: delivery is at least once. Old messages for a new subscriber of a group: a group
// has one cursor. A restart of the server in the middle has a test of its own, TestServerRestart.
func TestWatermillConformance(t *testing.T) {
	t.Parallel()
	s := &suite{t: t, ledgers: map[string]*pgtest.DB{}}
	features := tests.Features{
		ConsumerGroups:  true,
		GuaranteedOrder: true,
		Persistent:      true,
		// 5,000 or 10,000 messages per test show nothing that 100 do not, and take minutes under the race detector.
		ForceShort: true,
	}
	tests.TestPubSub(t, features, s.pubSub, s.pubSubOf)
}

// suite is what the suite's publishers and subscribers share.
type suite struct {
	t       *testing.T
	mu      sync.Mutex
	ledgers map[string]*pgtest.DB
}

func (s *suite) pubSub(t *testing.T) (message.Publisher, message.Subscriber) {
	return s.pubSubOf(t, "suite")
}

func (s *suite) pubSubOf(t *testing.T, group string) (message.Publisher, message.Subscriber) {
	return suitePublisher{s}, &suiteSubscriber{suite: s, t: t, group: group}
}

// ledger returns the ledger that stands for a topic.
func (s *suite) ledger(topic string) *pgtest.DB {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ledgers[topic] == nil {
		s.ledgers[topic] = pgtest.New(s.t, pgtest.MaxConns(4), pgtest.PoolConfig(func(config *pgxpool.Config) {
			// Dozens of topics live until the suite ends; what they no longer use goes back.
			config.MaxConnIdleTime, config.HealthCheckPeriod = time.Second, time.Second
		}))
	}
	return s.ledgers[topic]
}

// carried is a message of the suite on its way through an event.
type carried struct {
	UUID     string           `json:"uuid"`
	Payload  []byte           `json:"payload"`
	Metadata message.Metadata `json:"metadata"`
}

type suitePublisher struct{ *suite }

// Publish enqueues. An event holds no payload, but it does hold the concurrency key.
func (p suitePublisher) Publish(topic string, messages ...*message.Message) error {
	db := p.ledger(topic)
	queue, err := commands.NewQueue(commands.Config{Pool: db.Pool})
	if err != nil {
		return err
	}
	for _, msg := range messages {
		text, err := json.Marshal(carried{msg.UUID, msg.Payload, msg.Metadata})
		if err != nil {
			return err
		}
		_, err = queue.Enqueue(context.Background(), commands.EnqueueOptions{Type: "suite", ConcurrencyKey: string(text)})
		if err != nil {
			return err
		}
	}
	return nil
}

func (suitePublisher) Close() error { return nil }

// suiteSubscriber makes a Subscriber for each topic, and gives each message the looks that it had when it was published.
// Ack, nack and context are the message's own.
type suiteSubscriber struct {
	*suite
	t           *testing.T
	group       string
	mu          sync.Mutex
	subscribers map[string]*outbox.Subscriber
	forwarding  sync.WaitGroup
}

func (s *suiteSubscriber) subscriber(topic string) (*outbox.Subscriber, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.subscribers[topic] == nil {
		subscriber, err := outbox.NewSubscriber(outbox.Config{
			Pool:           s.ledger(topic).Pool,
			ConsumerGroup:  s.group,
			PollInterval:   5 * time.Millisecond,
			ResendInterval: time.Millisecond,
		})
		if err != nil {
			return nil, err
		}
		if s.subscribers == nil {
			s.subscribers = map[string]*outbox.Subscriber{}
		}
		s.subscribers[topic] = subscriber
	}
	return s.subscribers[topic], nil
}

func (s *suiteSubscriber) SubscribeInitialize(topic string) error {
	subscriber, err := s.subscriber(topic)
	if err != nil {
		return err
	}
	return subscriber.SubscribeInitialize(outbox.TopicAll)
}

func (s *suiteSubscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	subscriber, err := s.subscriber(topic)
	if err != nil {
		return nil, err
	}
	in, err := subscriber.Subscribe(ctx, outbox.TopicAll)
	if err != nil {
		return nil, err
	}
	out := make(chan *message.Message)
	s.forwarding.Go(func() {
		defer close(out)
		for msg := range in {
			s.restore(msg)
			select {
			case out <- msg:
			case <-msg.Context().Done(): // the Subscriber has taken it back
			}
		}
	})
	return out, nil
}

// restore works on a copy that is delivered again too: the body is gone from that one, having been restored already.
func (s *suiteSubscriber) restore(msg *message.Message) {
	if msg.Metadata.Get("restored") != "" {
		return
	}
	var body struct {
		ConcurrencyKey string `json:"concurrency_key"`
	}
	var sent carried
	if err := json.Unmarshal(msg.Payload, &body); err != nil {
		s.t.Errorf("body %s: %v", msg.Payload, err)
	}
	if err := json.Unmarshal([]byte(body.ConcurrencyKey), &sent); err != nil {
		s.t.Errorf("concurrency key %q: %v", body.ConcurrencyKey, err)
	}
	msg.UUID, msg.Payload = sent.UUID, sent.Payload
	for name, value := range sent.Metadata {
		msg.Metadata.Set(name, value)
	}
	msg.Metadata.Set("restored", "yes")
}

func (s *suiteSubscriber) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, subscriber := range s.subscribers {
		if err := subscriber.Close(); err != nil {
			return err
		}
	}
	s.forwarding.Wait()
	return nil
}
