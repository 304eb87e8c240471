package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"
)

// patience bounds what this package does on behalf of a test: long enough for a loaded machine, short
// enough to see a stack trace before go test's own timeout.
const patience = 2 * time.Minute

// thisProcess is what all tests of a test binary share. It has to be global: TestMain, which sets it
// up, can't hand anything to the tests.
var thisProcess struct {
	sync.Mutex
	entered bool // Main was called
	source  *source
	shared  *shared // nil when the environment names a server
	err     error   // why there is no source; remembered, or every test would wait for it again
}

// Main runs the tests of a package and exits. Call it from TestMain, and do nothing else there: in
// a process started as the keeper of the shared cluster it never runs the tests.
func Main(m *testing.M) {
	if dir := os.Getenv(keeperVariable); dir != "" {
		if err := keep(context.Background(), dir, idleTime()); err != nil {
			fmt.Fprintln(os.Stderr, time.Now().Format(time.RFC3339), err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	thisProcess.Lock()
	thisProcess.entered = true
	thisProcess.Unlock()

	code := m.Run()
	leave()
	os.Exit(code)
}

// leave gives back what this process holds. The end of the process would do so too.
func leave() {
	thisProcess.Lock()
	defer thisProcess.Unlock()
	if thisProcess.source != nil {
		thisProcess.source.close()
	}
	if thisProcess.shared != nil {
		thisProcess.shared.release()
	}
}

// commonSource returns where this process makes its databases. The first call starts or joins the
// server: packages that need no database don't pay for one.
func commonSource(ctx context.Context) (*source, error) {
	thisProcess.Lock()
	defer thisProcess.Unlock()
	p := &thisProcess
	if !p.entered {
		// The keeper is this binary again. Without Main it would run the tests, start a
		// keeper, which would run the tests …
		return nil, errors.New("pgtest: this package has no TestMain that calls pgtest.Main")
	}
	if p.source != nil || p.err != nil {
		return p.source, p.err
	}
	url := os.Getenv("DAYBOOK_TEST_DATABASE_URL")
	if url == "" {
		url = os.Getenv("DATABASE_URL")
	}
	if url == "" {
		p.shared, p.err = joinShared(ctx)
		if p.err != nil {
			return nil, p.err
		}
		url = p.shared.server.URL()
	}
	p.source, p.err = newSource(ctx, url)
	return p.source, p.err
}
