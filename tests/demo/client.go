package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// client is whoever asks something of the shop. It counts what it asked.
type client struct {
	*page
	http *http.Client
	mu   sync.Mutex
	// asked is how many requests were sent, and unanswered how many got no answer.
	asked, unanswered int
}

func newClient(p *page) *client {
	return &client{page: p, http: &http.Client{
		Timeout: 30 * time.Second,
		// A connection each: Go repeats a request by itself where a connection that it reused breaks.
		Transport: &http.Transport{DisableKeepAlives: true},
	}}
}

// post sends a request and returns the answer; an error is a lost answer.
func (c *client) post(ctx context.Context, url, key string, body []byte) (int, answer, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, answer{}, err
	}
	request.Header.Set("Content-Type", "application/json")
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	c.count(&c.asked)
	response, err := c.http.Do(request)
	if err != nil {
		c.count(&c.unanswered)
		return 0, answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	var a answer
	if err := json.NewDecoder(response.Body).Decode(&a); err != nil {
		return 0, answer{}, fmt.Errorf("read the answer: %w", err)
	}
	return response.StatusCode, a, nil
}

func (c *client) count(n *int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*n++
}

// received is an answer that a client got.
type received struct {
	status int
	answer answer
	err    error
}

// atOnce sends the same request several times at the same moment, and returns the answers, accepted ones first.
func (c *client) atOnce(ctx context.Context, times int, url, key string, body []byte) []received {
	all := make([]received, times)
	var start, done sync.WaitGroup
	start.Add(1)
	for i := range all {
		done.Go(func() {
			start.Wait()
			all[i].status, all[i].answer, all[i].err = c.post(ctx, url, key, body)
		})
	}
	start.Done()
	done.Wait()
	var first, rest []received
	for _, r := range all {
		if r.status == http.StatusCreated {
			first = append(first, r)
		} else {
			rest = append(rest, r)
		}
	}
	return append(first, rest...)
}

// tell prints an answer.
func (c *client) tell(who string, r received) {
	if r.err != nil {
		c.line(who, "no answer: the connection was cut")
		return
	}
	a := r.answer
	key := fmt.Sprintf("key %s %s", a.KeyDigest, a.KeyPreview)
	switch {
	case len(a.Fields) > 0:
		c.line(who, "%d %s  %s belongs to job %s, different: %s", r.status, a.Outcome, key, short(a.JobID.String()), a.Fields)
	case a.Problem != "":
		c.line(who, "%d %s  %s", r.status, a.Problem, key)
	default:
		c.line(who, "%d %s  %s  job %s", r.status, a.Outcome, key, short(a.JobID.String()))
	}
}
