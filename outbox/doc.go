// Package outbox carries the ledger's events to whoever subscribes, through Watermill. It is the only package that
// knows Watermill.
//
// A [Subscriber] is a Watermill message.Subscriber: durable consumer groups, in position order, at least once. There
// is a topic for all events, [TopicAll], and one for each kind, see [Topic]. A message carries an event as a
// CloudEvent in binary mode: the attributes as metadata, the body as payload; [NewMessage] documents each of them,
// and [AttributesOf] reads them.
//
// A [Relay] moves events to a broker, any Watermill message.Publisher; package jetstream has one for NATS. Events that
// the broker refuses are parked, see [ListParked], [Redrive] and [Discard], and the others go on.
//
// A [Projector] runs projections on Watermill's Router in ranges of positions, several of them in one transaction or each in its
// own. It knows a projection only as a [RangeHandler], and several as a [RangeGroup]; package projections has those.
//
// Each of them sequences before it reads, so that there is no daemon to run. While nothing happens it asks every few
// milliseconds whether event ids were drawn, on one connection, so that an event on an idle ledger is with its handler
// within milliseconds of its commit; see Config.ProbeInterval for what that costs.
//
// Delivery to a handler is at least once: after a crash, a nack or a deadline the same message comes again, with the
// same UUID; [Subscriber] says which ones can. A handler that must not do something twice remembers the UUID, or the
// position, in the transaction in which it does it.
//
// # Traces
//
// A message has the traceparent of the enqueue that led to it. The handler decides whether its span continues that
// trace or links to it:
//
//	ctx := propagation.TraceContext{}.Extract(msg.Context(), propagation.MapCarrier(msg.Metadata))
//	ctx, span := tracer.Start(ctx, "send invoice", trace.WithSpanKind(trace.SpanKindConsumer))
package outbox
