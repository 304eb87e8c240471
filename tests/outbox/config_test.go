package outbox_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/outbox"
)

// lazyPool returns a pool that has not connected to anything yet.
func lazyPool(t *testing.T, maxConns string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/nothing?pool_max_conns="+maxConns)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

func TestSubscriberConfig(t *testing.T) {
	t.Parallel()
	pool, tiny := lazyPool(t, "2"), lazyPool(t, "1")
	with := func(change func(*outbox.Config)) outbox.Config {
		config := outbox.Config{Pool: pool, ConsumerGroup: "group"}
		change(&config)
		return config
	}
	good := map[string]outbox.Config{
		"defaults":        with(func(*outbox.Config) {}),
		"longest group":   with(func(c *outbox.Config) { c.ConsumerGroup = strings.Repeat("g", outbox.MaxGroupBytes) }),
		"largest page":    with(func(c *outbox.Config) { c.PageSize = outbox.MaxPageSize }),
		"quickest poll":   with(func(c *outbox.Config) { c.PollInterval = time.Millisecond }),
		"quickest probe":  with(func(c *outbox.Config) { c.ProbeInterval = time.Millisecond }),
		"no probe":        with(func(c *outbox.Config) { c.ProbeInterval = -1 }),
		"from a time":     with(func(c *outbox.Config) { c.Start = outbox.FromTime(time.Unix(0, 0)) }),
		"after the start": with(func(c *outbox.Config) { c.Start = outbox.FromAfter(0) }),
	}
	for name, config := range good {
		if subscriber, err := outbox.NewSubscriber(config); err != nil {
			t.Errorf("%s: %v", name, err)
		} else if err := subscriber.Close(); err != nil {
			t.Errorf("%s: close: %v", name, err)
		}
	}
	bad := map[string]outbox.Config{
		"Pool":          with(func(c *outbox.Config) { c.Pool = nil }),
		"pool_max_":     with(func(c *outbox.Config) { c.Pool = tiny }),
		"ConsumerGroup": with(func(c *outbox.Config) { c.ConsumerGroup = "" }),
		"201":           with(func(c *outbox.Config) { c.ConsumerGroup = strings.Repeat("g", 200) + "201" }),
		"a/b":           with(func(c *outbox.Config) { c.ConsumerGroup = "a/b" }),
		`\n`:            with(func(c *outbox.Config) { c.ConsumerGroup = "a\nb" }),
		`\xff`:          with(func(c *outbox.Config) { c.ConsumerGroup = "\xff" }),
		"zero time":     with(func(c *outbox.Config) { c.Start = outbox.FromTime(time.Time{}) }),
		"Start":         with(func(c *outbox.Config) { c.Start = outbox.FromAfter(-1) }),
		"PageSize":      with(func(c *outbox.Config) { c.PageSize = outbox.MaxPageSize + 1 }),
		"PollInterval":  with(func(c *outbox.Config) { c.PollInterval = time.Millisecond - 1 }),
		"ProbeInterval": with(func(c *outbox.Config) { c.ProbeInterval = time.Millisecond - 1 }),
		"AckDeadline":   with(func(c *outbox.Config) { c.AckDeadline = -1 }),
		"RetryInterval": with(func(c *outbox.Config) { c.RetryInterval = -1 }),
	}
	for name, config := range bad {
		if _, err := outbox.NewSubscriber(config); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestProjectorConfig(t *testing.T) {
	t.Parallel()
	pool := lazyPool(t, "1")
	handler := &tally{name: "one"}
	if _, err := outbox.NewProjector(outbox.ProjectorConfig{Pool: pool}, handler); err != nil {
		t.Error(err)
	}
	bad := map[string]outbox.ProjectorConfig{
		"Pool":          {},
		"RangeSize":     {Pool: pool, RangeSize: outbox.MaxRangeSize + 1},
		"PollInterval":  {Pool: pool, PollInterval: 1},
		"ProbeInterval": {Pool: pool, ProbeInterval: 1},
		"RetryInterval": {Pool: pool, RetryInterval: -1},
	}
	for name, config := range bad {
		if _, err := outbox.NewProjector(config, handler); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	for name, handlers := range map[string][]outbox.RangeHandler{
		"no projection": nil,
		`""`:            {&tally{}},
		`"one"`:         {handler, &tally{name: "one"}},
	} {
		if _, err := outbox.NewProjector(outbox.ProjectorConfig{Pool: pool}, handlers...); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// group is a group in name only.
type group struct {
	outbox.RangeGroup

	names []string
}

func (g group) Names() []string { return g.names }

func TestGroupProjectorConfig(t *testing.T) {
	t.Parallel()
	config := outbox.ProjectorConfig{Pool: lazyPool(t, "1")}
	if _, err := outbox.NewGroupProjector(config, group{names: []string{"one", "two"}}, group{names: []string{"three"}}); err != nil {
		t.Error(err)
	}
	for want, groups := range map[string][]outbox.RangeGroup{
		"no projection to run":       nil,
		"a group has no projection":  {group{names: []string{"one"}}, group{}},
		`""`:                         {group{names: []string{""}}},
		`"one" is empty or there tw`: {group{names: []string{"one", "two"}}, group{names: []string{"three", "one"}}},
	} {
		if _, err := outbox.NewGroupProjector(config, groups...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", want, err)
		}
	}
	if _, err := outbox.NewGroupProjector(outbox.ProjectorConfig{}, group{names: []string{"one"}}); err == nil || !strings.Contains(err.Error(), "Pool") {
		t.Errorf("without a pool: %v", err)
	}
}
