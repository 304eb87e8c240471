package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/outbox"
	"github.com/daybook-go/daybook/projections"
)

// workerVariable names the environment variable that makes this program a worker: it has a task, as JSON.
const workerVariable = "DAYBOOK_BENCH_WORKER"

// task is what a worker is to do: one of tasks, on the events after a position, so many.
type task struct {
	Name     string
	URL      string
	Database string
	After    ledger.Position
	Events   int64
}

// finished is what a worker tells when it is done.
type finished struct {
	PeakBytes int64
	Seconds   float64
}

// tasks are what a process may have to do in production, each in a process of its own.
var tasks = map[string]func(ctx context.Context, pool *pgxpool.Pool, t task) error{
	"relay": func(ctx context.Context, pool *pgxpool.Pool, t task) error {
		return relayEvents(ctx, pool, "memory", outbox.FromAfter(t.After), t.Events, nil)
	},
	"projector": func(ctx context.Context, pool *pgxpool.Pool, t task) error {
		if err := openProjections(ctx, pool, t.After); err != nil {
			return err
		}
		return projectAll(ctx, pool, t.After+ledger.Position(t.Events))
	},
	"catch up": func(ctx context.Context, pool *pgxpool.Pool, t task) error {
		if err := openProjections(ctx, pool, t.After); err != nil {
			return err
		}
		return catchUpAll(ctx, pool, t.After+ledger.Position(t.Events))
	},
	"rebuild of view_decision_rate": rebuildTask(projections.ViewDecisionRate()),
	"rebuild of view_key":           rebuildTask(projections.ViewKey()),
}

func rebuildTask(view projections.Projection) func(ctx context.Context, pool *pgxpool.Pool, t task) error {
	return func(ctx context.Context, pool *pgxpool.Pool, t task) error {
		result, err := projections.Rebuild(ctx, pool, view, projections.RebuildConfig{DropOld: true})
		if err == nil && result.Position < t.After+ledger.Position(t.Events) {
			err = fmt.Errorf("the rebuild ended at position %d", result.Position)
		}
		return err
	}
}

// openProjections makes all begin after a position.
func openProjections(ctx context.Context, pool *pgxpool.Pool, after ledger.Position) error {
	for _, p := range projections.Builtin() {
		if _, err := ledger.OpenCursor(ctx, pool, projections.CursorName(p.Name), after); err != nil {
			return err
		}
	}
	return nil
}

// runWorker does a task and writes what became of it.
func runWorker(ctx context.Context, text string, stdout io.Writer) error {
	var t task
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return fmt.Errorf("read %s: %w", workerVariable, err)
	}
	work := tasks[t.Name]
	if work == nil {
		return fmt.Errorf("there is no task %q", t.Name)
	}
	config, err := pgxpool.ParseConfig(t.URL)
	if err != nil {
		return err
	}
	config.ConnConfig.Database = t.Database
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	start := time.Now()
	if err := work(ctx, pool, t); err != nil {
		return err
	}
	done := finished{Seconds: time.Since(start).Seconds()}
	if done.PeakBytes, err = peakMemory(); err != nil {
		return err
	}
	return json.NewEncoder(stdout).Encode(done)
}

// inProcess has a task done by a process of its own, which is this program once more.
func (b *Bench) inProcess(ctx context.Context, t task) (done finished, err error) {
	t.URL = b.config.ConnString()
	text, err := json.Marshal(t)
	if err != nil {
		return done, err
	}
	self, err := os.Executable()
	if err != nil {
		return done, err
	}
	var stdout, stderr bytes.Buffer
	command := exec.CommandContext(ctx, self)
	command.Env = append(os.Environ(), workerVariable+"="+string(text))
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return done, fmt.Errorf("%s in a process of its own: %w", t.Name, errors.Join(err, errors.New(stderr.String())))
	}
	if err := json.Unmarshal(stdout.Bytes(), &done); err != nil {
		return done, fmt.Errorf("%s in a process of its own: %w", t.Name, err)
	}
	return done, nil
}
