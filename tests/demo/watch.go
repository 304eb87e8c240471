package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
)

// patience bounds how long the story waits for anybody; on a machine that works nothing takes a second.
const patience = time.Minute

// watcher subscribes to acceptance events and prints each as it comes.
type watcher struct {
	*page
	subscriber *outbox.Subscriber
	// seen gets each event's position once it is printed.
	seen  chan ledger.Position
	count int
}

func openWatcher(ctx context.Context, pool *pgxpool.Pool, p *page) (*watcher, error) {
	subscriber, err := outbox.NewSubscriber(outbox.Config{Pool: pool, ConsumerGroup: "mailer"})
	if err != nil {
		return nil, err
	}
	messages, err := subscriber.Subscribe(ctx, outbox.Topic(ledger.KindAccepted))
	if err != nil {
		_ = subscriber.Close()
		return nil, err
	}
	w := &watcher{page: p, subscriber: subscriber, seen: make(chan ledger.Position, 100)}
	go func() {
		// Ends with the subscriber.
		for msg := range messages {
			position, err := w.print(msg.Metadata, msg.Payload)
			if err != nil {
				p.line("subscriber", "cannot read a message: %v", err)
			}
			msg.Ack()
			w.seen <- position
		}
	}()
	return w, nil
}

func (w *watcher) print(metadata map[string]string, payload []byte) (ledger.Position, error) {
	var body struct {
		Type       string `json:"type"`
		JobID      string `json:"job_id"`
		KeyDigest  string `json:"key_digest"`
		KeyPreview string `json:"key_preview"`
	}
	var position ledger.Position
	if _, err := fmt.Sscan(metadata[outbox.MetadataSequence], &position); err != nil {
		return 0, err
	}
	if err := json.Unmarshal(payload, &body); err != nil {
		return position, err
	}
	w.line("subscriber", "position %d  %s  %s  key %s %s  job %s", position, metadata[outbox.MetadataType],
		body.Type, body.KeyDigest, body.KeyPreview, short(body.JobID))
	return position, nil
}

// await waits until so many more events were printed.
func (w *watcher) await(ctx context.Context, events int) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for range events {
		select {
		case <-w.seen:
			w.count++
		case <-ctx.Done():
			return fmt.Errorf("wait for acceptance event %d: %w", w.count+1, ctx.Err())
		}
	}
	return nil
}

// close ends the subscription; what was printed and not awaited is counted.
func (w *watcher) close() {
	_ = w.subscriber.Close()
	for {
		select {
		case <-w.seen:
			w.count++
		default:
			return
		}
	}
}

// short is the end of a job's ID: the beginning is a time, and much alike.
func short(jobID string) string {
	if len(jobID) < 12 {
		return jobID
	}
	return "…" + jobID[len(jobID)-12:]
}
