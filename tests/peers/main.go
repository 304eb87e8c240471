package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// databaseURLVariable names the environment variable that names a server to use instead of one of our own.
const databaseURLVariable = "DAYBOOK_BENCH_DATABASE_URL"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	if text := os.Getenv(workerVariable); text != "" {
		err = runWorker(ctx, text, os.Stdout)
	} else {
		err = run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	}
	stop()
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	default:
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("peers: wrong use; --help tells more")

// Options say what is measured, and for how long.
type Options struct {
	// Rounds is how often each contender of a case is measured.
	Rounds int
	// RoundTime is how long each of these takes.
	RoundTime time.Duration
	// Only picks cases by name; nil is all.
	Only *regexp.Regexp
	// Writers are the numbers of callers at once, for the cases with single calls.
	Writers []int
	// Bindings is how many expired bindings there are where it is their number that matters.
	Bindings int64
	// Events is how many events the ledger has where it is its length that matters.
	Events int64
	// JSON prints for programs.
	JSON bool
}

func parseOptions(args []string, stderr io.Writer) (Options, error) {
	flags := flag.NewFlagSet("peers", flag.ContinueOnError)
	flags.SetOutput(stderr)
	o := Options{
		Rounds: 7, RoundTime: 1200 * time.Millisecond, Writers: []int{1, 8, 32}, Bindings: 10_000_000, Events: 10_000_000,
	}
	quick := flags.Bool("quick", false,
		"a short run, to see that everything works: 3 rounds of 300ms, 200,000 bindings and as many events unless said otherwise")
	flags.IntVar(&o.Rounds, "rounds", o.Rounds, "how often each contender of a case is measured; the median counts")
	flags.DurationVar(&o.RoundTime, "round-time", o.RoundTime, "how long each round takes")
	flags.Int64Var(&o.Bindings, "bindings", o.Bindings, "expired bindings, for the cases bindings and expired")
	flags.Int64Var(&o.Events, "events", o.Events, "events of the long ledger, for the cases scale, memory and projecting/1M")
	flags.BoolVar(&o.JSON, "json", false, "print JSON, with the rate of each round")
	flags.Func("only", "`regexp` of the cases to run, as 'fresh/8' or '^batch'", func(s string) (err error) {
		o.Only, err = regexp.Compile(s)
		return err
	})
	flags.Func("writers", "callers at once, for single calls; a `list` (default 1,8,32)", func(s string) error {
		o.Writers = nil
		for word := range strings.SplitSeq(s, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(word))
			if err != nil || n < 1 || n > maxWriters {
				return fmt.Errorf("%q is not a number from 1 to %d", word, maxWriters)
			}
			o.Writers = append(o.Writers, n)
		}
		return nil
	})
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return o, err
		}
		return o, errors.Join(errUsage, err)
	}
	given := map[string]bool{}
	flags.Visit(func(f *flag.Flag) { given[f.Name] = true })
	if *quick && !given["rounds"] {
		o.Rounds = 3
	}
	if *quick && !given["round-time"] {
		o.RoundTime = 300 * time.Millisecond
	}
	if *quick && !given["bindings"] {
		o.Bindings = 200_000
	}
	if *quick && !given["events"] {
		o.Events = 200_000
	}
	if flags.NArg() > 0 || o.Rounds < 1 || o.RoundTime <= 0 || o.Bindings < fewBindings || o.Events < leastEvents {
		return o, errUsage
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	options, err := parseOptions(args, stderr)
	if err != nil {
		return err
	}
	bench, err := openBench(ctx, options, os.Getenv(databaseURLVariable))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, bench.close()) }()

	report := Report{Rounds: options.Rounds, RoundTime: options.RoundTime.String(), MadeAt: time.Now().UTC()}
	if report.Settings, err = bench.settings(ctx); err != nil {
		return err
	}
	if !options.JSON {
		report.writeHeader(stdout)
	}
	for _, c := range cases(options) {
		if options.Only != nil && !options.Only.MatchString(c.Name) {
			continue
		}
		fmt.Fprintf(stderr, "%s %s\n", time.Now().Format(time.TimeOnly), c.Name)
		rows, err := c.Run(ctx, bench)
		if err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
		report.add(c.Name, rows)
	}
	if options.JSON {
		err = report.writeJSON(stdout)
	} else {
		report.writeTable(stdout)
	}
	return errors.Join(err, report.failed())
}
