package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/daybook-go/daybook/migrations"
)

func main() {
	list := flag.Bool("list", false, "say what there is, and run nothing")
	only := flag.String("only", "", "run those with this in their name")
	flag.Parse()
	if *list {
		for _, m := range mutations() {
			fmt.Printf("%-34s %s\n", m.name, m.rule)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	survived, err := run(ctx, *only)
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "mutation:", err)
		os.Exit(2) //nolint:gocritic // the process ends, and with it what is deferred
	case survived > 0:
		fmt.Fprintf(os.Stderr, "mutation: %d survived: no test notices what they break\n", survived)
		os.Exit(1)
	}
}

// suite runs tests with one mutation or none.
type suite struct {
	dir      string            // of what is made here
	binaries map[string]string // by package
}

func run(ctx context.Context, only string) (survived int, err error) {
	all, err := migrations.All()
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "daybook-mutation-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s := suite{dir: dir, binaries: map[string]string{}}

	var chosen []mutation
	unbroken := map[string][]string{}
	for _, m := range mutations() {
		if strings.Contains(m.name, only) {
			chosen = append(chosen, m)
			unbroken[m.pkg] = append(unbroken[m.pkg], m.run)
		}
	}
	if len(chosen) == 0 {
		return 0, fmt.Errorf("no mutation has %q in its name", only)
	}
	for pkg, tests := range unbroken {
		if err := s.build(ctx, pkg); err != nil {
			return 0, err
		}
		// A slash separates the levels of a test's name, so it cannot be inside an alternative.
		for _, pattern := range patterns(tests) {
			failed, output, err := s.test(ctx, pkg, pattern, "")
			if err != nil {
				return 0, err
			}
			if failed {
				return 0, fmt.Errorf("%s -run %s fails unbroken\n%s", pkg, pattern, output)
			}
		}
	}

	for _, m := range chosen {
		statement, err := m.statement(all)
		if err != nil {
			return survived, fmt.Errorf("%s: %w", m.name, err)
		}
		path := filepath.Join(dir, "mutation.sql")
		// Readable to the tests, whoever runs them.
		if err := os.WriteFile(path, []byte(statement), 0o644); err != nil {
			return survived, err
		}
		start := time.Now()
		failed, output, err := s.test(ctx, m.pkg, m.run, path)
		if err != nil {
			return survived, fmt.Errorf("%s: %w", m.name, err)
		}
		if bytes.Contains(output, []byte("DAYBOOK_TEST_MUTATION: ")) {
			return survived, fmt.Errorf("%s: PostgreSQL does not take it\n%s", m.name, output)
		}
		verdict := "caught  "
		if !failed {
			verdict = "SURVIVED"
			survived++
		}
		fmt.Printf("%s  %-34s %4.1f s  %s\n", verdict, m.name, time.Since(start).Seconds(), firstFailure(output))
	}
	return survived, nil
}

func patterns(tests []string) []string {
	var joined []string
	var alone []string
	for _, pattern := range tests {
		if strings.Contains(pattern, "/") {
			alone = append(alone, pattern)
		} else {
			joined = append(joined, pattern)
		}
	}
	if len(joined) > 0 {
		alone = append(alone, strings.Join(joined, "|"))
	}
	return alone
}

func (s suite) build(ctx context.Context, pkg string) error {
	binary := filepath.Join(s.dir, filepath.Base(pkg)+".test")
	output, err := exec.CommandContext(ctx, "go", "test", "-c", "-o", binary, pkg).CombinedOutput()
	if err != nil {
		return fmt.Errorf("build the tests of %s: %w\n%s", pkg, err, output)
	}
	s.binaries[pkg] = binary
	return nil
}

// test runs some tests of a package, and says whether one failed.
func (s suite) test(ctx context.Context, pkg, pattern, mutation string) (failed bool, output []byte, err error) {
	// Shrinking is for people; here a failure is enough.
	cmd := exec.CommandContext(ctx, s.binaries[pkg], "-test.run="+pattern, "-test.failfast", "-test.timeout=3m", "-test.v",
		"-rapid.shrinktime=1ms")
	if pkg != jobs {
		cmd.Args = cmd.Args[:len(cmd.Args)-1] // has no rapid in it
	}
	cmd.Dir = pkg
	cmd.Env = append(os.Environ(), "DAYBOOK_TEST_MUTATION="+mutation)
	output, err = cmd.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && ctx.Err() == nil {
		return true, output, nil
	}
	return false, output, err
}

// firstFailure is the name of a test that noticed.
func firstFailure(output []byte) string {
	for line := range strings.SplitSeq(string(output), "\n") {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "--- FAIL: "); ok {
			return "by " + strings.Fields(name)[0]
		}
	}
	return ""
}
