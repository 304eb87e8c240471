package main

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

//go:embed webhooks/*.json
var webhooks embed.FS

// story is the people who ask the shop for something, one chapter after another. Each chapter waits until the
// subscriber has shown what it led to, so that the page reads in order.
type story struct {
	*page
	shop     *shop
	proxy    *proxy
	client   *client
	provider *client
	watcher  *watcher
	// keys are all that were used, to be looked for at the end.
	keys []string
}

// orderKey is made by the browser when the order's page opens: guessable from the order's number, hence HMAC.
func (s *story) orderKey(number string) string {
	key := "place-order:" + number
	s.keys = append(s.keys, key)
	return key
}

func mustOrder(o order) []byte {
	// A struct of strings and integers.
	body, _ := json.Marshal(o)
	return body
}

func (s *story) tellAll(ctx context.Context) error {
	lamp := order{Number: "2026-000481", Customer: "Jona Weber", SKU: "lamp", AmountCents: 4990, Currency: "eur"}
	desk := order{Number: "2026-000482", Customer: "Noor de Vries", SKU: "desk", AmountCents: 12500, Currency: "eur"}
	chair := order{Number: "2026-000483", Customer: "Ana Silva", SKU: "chair", AmountCents: 8900, Currency: "eur"}
	lampKey := s.orderKey(lamp.Number)
	for _, chapter := range []func() error{
		func() error { return s.doubleClick(ctx, lamp, lampKey) },
		func() error { return s.lostAnswer(ctx, desk, s.orderKey(desk.Number)) },
		func() error { return s.redeliveries(ctx) },
		func() error { return s.otherAmount(ctx, lamp, lampKey) },
		func() error { return s.rollback(ctx, chair, s.orderKey(chair.Number)) },
	} {
		if err := chapter(); err != nil {
			return err
		}
	}
	return nil
}

func (s *story) doubleClick(ctx context.Context, o order, key string) error {
	s.chapter(1, "A double click",
		"Order "+o.Number+" arrives twice at once. Each request has its own transaction, with the order row in it.")
	for _, r := range s.client.atOnce(ctx, 2, s.shop.url+"/orders", key, mustOrder(o)) {
		s.client.tell("browser", r)
	}
	return s.watcher.await(ctx, 1)
}

func (s *story) lostAnswer(ctx context.Context, o order, key string) error {
	s.chapter(2, "A lost answer",
		"The connection is cut after the shop has committed and before the client has read the answer. It asks again.")
	s.proxy.cuts.Store(1)
	var first, second received
	first.status, first.answer, first.err = s.client.post(ctx, s.proxy.url+"/orders", key, mustOrder(o))
	s.client.tell("client", first)
	if first.err == nil {
		return errors.New("the answer should have been lost")
	}
	// The job is there although its client does not know.
	if err := s.watcher.await(ctx, 1); err != nil {
		return err
	}
	second.status, second.answer, second.err = s.client.post(ctx, s.proxy.url+"/orders", key, mustOrder(o))
	s.client.tell("client", second)
	return second.err
}

func (s *story) redeliveries(ctx context.Context) error {
	s.chapter(3, "Webhooks, delivered more than once",
		"The payment provider repeats what it is not sure of: an event's id is its key.")
	paid, session, refund := s.webhook("payment_intent.succeeded"), s.webhook("checkout.session.completed"), s.webhook("charge.refunded")
	url := s.shop.url + "/webhooks"
	deliver := func(times int, body []byte, about string) {
		for i, r := range s.provider.atOnce(ctx, times, url, "", body) {
			if i == 0 {
				s.line("provider", "%s", about)
			}
			s.provider.tell("", r)
		}
	}
	deliver(2, paid, "payment_intent.succeeded, twice at once")
	deliver(1, session, "checkout.session.completed")
	deliver(1, refund, "charge.refunded")
	if err := s.watcher.await(ctx, 3); err != nil {
		return err
	}
	deliver(1, paid, "payment_intent.succeeded, once more")
	deliver(1, reordered(refund), "charge.refunded, once more: another order of its members, other white space, the same JSON value")
	return nil
}

// webhook returns a file of the provider's, and remembers its event's id.
func (s *story) webhook(name string) []byte {
	// Both were checked when the program was built or tested.
	body, _ := webhooks.ReadFile("webhooks/" + name + ".json")
	var event webhook
	_ = json.Unmarshal(body, &event)
	s.keys = append(s.keys, event.ID)
	return body
}

// reordered is the same JSON value in other bytes.
func reordered(body []byte) []byte {
	var value any
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.UseNumber()
	_ = decoder.Decode(&value)
	out, _ := json.Marshal(value)
	return out
}

func (s *story) otherAmount(ctx context.Context, o order, key string) error {
	s.chapter(4, "The same key, another amount",
		"Order "+o.Number+" again under its old key, for less. Three times: the refusal is recorded once.")
	o.AmountCents = 490
	for range 3 {
		var r received
		r.status, r.answer, r.err = s.client.post(ctx, s.shop.url+"/orders", key, mustOrder(o))
		s.client.tell("client", r)
		if r.err != nil {
			return r.err
		}
	}
	return nil
}

func (s *story) rollback(ctx context.Context, o order, key string) error {
	s.chapter(5, "A transaction that rolls back",
		"Order "+o.Number+" was accepted and its row written when the last chair turned out to be gone: nothing remains.")
	var r received
	r.status, r.answer, r.err = s.client.post(ctx, s.shop.url+"/orders", key, mustOrder(o))
	s.client.tell("client", r)
	if r.err == nil && !strings.Contains(r.answer.Problem, errOutOfStock.Error()) {
		return fmt.Errorf("the order should have been refused, and the answer was %d", r.status)
	}
	return r.err
}
