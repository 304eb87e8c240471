package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/projections"
)

// run tells the whole story on out. It returns an error where something failed or a number is not what the story
// demands.
func run(ctx context.Context, out io.Writer) error {
	p := &page{out: out}
	began := time.Now()
	p.printf("Daybook: the main job on real input")
	w, err := openWorld(ctx)
	if err != nil {
		return err
	}
	defer w.close(ctx)
	p.printf("PostgreSQL %s of its own on port %d, migrated, in %.1f s", w.server.Binaries.Version, w.server.Port(), time.Since(began).Seconds())

	numbers, keys, err := perform(ctx, p, w)
	if err != nil {
		return err
	}
	leaks, err := p.searchEverywhere(ctx, w, keys)
	if err != nil {
		return err
	}
	if wrong := p.judgeAll(numbers) + leaks; wrong > 0 {
		return fmt.Errorf("%d numbers are not what the story demands", wrong)
	}
	p.printf("\nAll is as the story demands. The server and its folder go now.")
	return nil
}

// perform opens the shop, its clients, the subscriber and the projections, tells the story, and returns what came of it.
func perform(ctx context.Context, p *page, w *world) (*tally, []string, error) {
	metrics := sdkmetric.NewManualReader()
	queue, keys, err := openQueue(w, metrics)
	if err != nil {
		return nil, nil, err
	}
	shop, err := openShop(ctx, queue, keys)
	if err != nil {
		return nil, nil, err
	}
	defer shop.close(ctx)
	proxy, err := openProxy(ctx, strings.TrimPrefix(shop.url, "http://"))
	if err != nil {
		return nil, nil, err
	}
	defer proxy.close()
	watcher, err := openWatcher(ctx, w.relay, p)
	if err != nil {
		return nil, nil, err
	}
	defer watcher.close()
	stopProjecting, err := project(ctx, w)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = stopProjecting() }()

	s := &story{page: p, shop: shop, proxy: proxy, client: newClient(p), provider: newClient(p), watcher: watcher}
	if err := s.tellAll(ctx); err != nil {
		return nil, nil, err
	}
	if err := awaitReaders(ctx, w); err != nil {
		return nil, nil, err
	}
	if err := stopProjecting(); err != nil {
		return nil, nil, err
	}
	watcher.close()
	t := &tally{
		asked: s.client.asked + s.provider.asked, unanswered: s.client.unanswered + s.provider.unanswered,
		lost: proxy.lost.Load(), published: watcher.count,
	}
	if t.decided, err = decided(ctx, metrics); err != nil {
		return nil, nil, err
	}
	if t.written, err = written(ctx, w.admin); err != nil {
		return nil, nil, err
	}
	if err := p.operate(ctx, w, t); err != nil {
		return nil, nil, err
	}
	return t, s.keys, nil
}

// openQueue makes the shop's queue. Orders have numbers that anybody can count up, so keys are hashed with a secret: whoever
// gets hold of the database alone can't find out which keys were used.
func openQueue(w *world, metrics *sdkmetric.ManualReader) (*commands.Queue, ledger.Keys, error) {
	secret := make([]byte, 32)
	// It never fails: where there is no randomness the process ends.
	_, _ = rand.Read(secret)
	keys, err := ledger.NewHMACKeys(secret)
	if err != nil {
		return nil, ledger.Keys{}, err
	}
	queue, err := commands.NewQueue(commands.Config{
		Pool: w.shop, Keys: keys, MeterProvider: sdkmetric.NewMeterProvider(sdkmetric.WithReader(metrics)),
	})
	return queue, keys, err
}

// project runs the built-in projections until the returned function is called; calling it again does nothing.
func project(ctx context.Context, w *world) (stop func() error, err error) {
	var handlers []outbox.RangeHandler
	for _, projection := range projections.Builtin() {
		runner, err := projections.NewRunner(projection, projections.RunnerConfig{})
		if err != nil {
			return nil, err
		}
		handlers = append(handlers, runner)
	}
	projector, err := outbox.NewProjector(outbox.ProjectorConfig{Pool: w.relay}, handlers...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- projector.Run(ctx) }()
	stopped := false
	return func() error {
		if stopped {
			return nil
		}
		stopped = true
		cancel()
		return <-ended
	}, nil
}

// awaitReaders waits until everything that has committed is sequenced, published and projected.
func awaitReaders(ctx context.Context, w *world) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		status, err := ledger.ReadStatus(ctx, w.operator)
		if err != nil {
			return err
		}
		behind := status.Unsequenced.Events
		for _, c := range status.Cursors {
			behind += c.Lag.Events
		}
		if behind == 0 && len(status.Cursors) == 1+len(projections.Builtin()) {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(errors.New("the subscriber and the projections do not catch up"), ctx.Err())
		}
	}
}

// searchEverywhere ends all connections, makes the server write everything to its files, and looks for keys in them.
func (p *page) searchEverywhere(ctx context.Context, w *world, keys []string) (leaks int, err error) {
	if _, err := w.admin.Exec(ctx, `checkpoint`); err != nil {
		return 0, err
	}
	files, size, found, err := searchKeys(w.server.DataDir, keys)
	if err != nil {
		return 0, err
	}
	p.printf("\n7. The %d keys of the story\n   looked for in all %d files of the server (%d MB: tables, write-ahead log, and the log of every statement with its parameters): %s",
		len(keys), files, size>>20, foundIn(found))
	return len(found), nil
}

func foundIn(files []string) string {
	if len(files) == 0 {
		return "none is there"
	}
	return "FOUND in " + strings.Join(files, ", ")
}
