// Package jetstream is the broker that Daybook's relay is tested with: a Watermill publisher for NATS JetStream, set up so
// that an [outbox.Relay] can rely on it. It acknowledges when JetStream has stored the message, hands the event's UUID
// to JetStream's deduplication, never buffers while the server is away, and knows which errors are a message's own.
//
// A package of its own, so that who relays to another broker does not get NATS with it.
//
// [outbox.Relay]: https://pkg.go.dev/github.com/daybook-go/daybook/outbox#Relay
package jetstream
