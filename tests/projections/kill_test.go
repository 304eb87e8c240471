package projections_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/daybook-go/daybook/projections"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// victimURL names the variable with which this test binary, started once more, is a rebuild that is to be killed.
const victimURL = "DAYBOOK_TEST_REBUILD_URL"

// rebuildUntilKilled rebuilds all projections, and writes a line for each batch and each stage.
func rebuildUntilKilled(url string) int {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	defer pool.Close()
	_, err = projections.RebuildAll(ctx, pool, projections.Builtin(), projections.RebuildConfig{
		BatchSize: 50, Slices: 2,
		Progress: func(p projections.Progress) { fmt.Println("at", p.Position) },
		Stage:    func(name string, stage projections.Stage) { fmt.Println(name, stage) },
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// victim runs it, kills it after so many lines and a moment, and reports whether it was done before that.
func victim(t *testing.T, url string, lines int, moment time.Duration) (done bool) {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary)
	cmd.Env = append(os.Environ(), victimURL+"="+url)
	var stderr lockedBuffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	scanner, seen := bufio.NewScanner(stdout), 0
	for seen < lines && scanner.Scan() {
		seen++
	}
	if seen == lines {
		timer := time.NewTimer(moment)
		<-timer.C
		_ = cmd.Process.Kill()
	}
	err = cmd.Wait()
	if err != nil && cmd.ProcessState.Exited() {
		t.Fatalf("the rebuild failed by itself: %v\n%s", err, stderr.String())
	}
	return err == nil
}

type lockedBuffer struct {
	mu   sync.Mutex
	text []byte
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text = append(b.text, p...)
	return len(p), nil
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.text)
}

// A rebuild that is killed again and again, wherever it is, comes to its end; at no time is a live view wrong, and in
// the end each is what the events say.
func TestRebuildSurvivesSIGKILL(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	newStoryteller(1, 30).tell(t, db, 600)
	catchUp(t, db, 0)
	want := stored(t, db)
	const damaged = `select count(*) filter (where queue = 'damaged') in (0, count(*)) from daybook.view_job`
	// A whole run says 4 times fill, 12 times how far it is, 4 times index and swap.
	const lines = 24
	kills := 0
	for round := range 2 {
		db.Exec(t, `update daybook.view_job set queue = 'damaged'`)
		for attempt := 0; ; attempt++ {
			after, moment := 1+rand.IntN(lines), time.Duration(rand.IntN(30_000))*time.Microsecond
			if attempt > 3 {
				after = lines + 1 // let it come to its end
			}
			if victim(t, db.URL, after, moment) {
				break
			}
			kills++
			// Whatever it was at, readers see a whole view: the one before or the one after.
			if !queryOne[bool](t, db, damaged) {
				t.Fatalf("round %d, killed after line %d and %v: a view is half-built", round, after, moment)
			}
			now := stored(t, db)
			now.Jobs = want.Jobs
			if diff := cmp.Diff(want, now); diff != "" {
				t.Fatalf("round %d, killed after line %d and %v: a live view is wrong (-want +got):\n%.2000s", round, after, moment, diff)
			}
		}
		for _, p := range projections.Builtin() {
			if report := verify(t, db, p); !report.OK {
				t.Errorf("round %d: %+v", round, report)
			}
		}
	}
	if kills == 0 {
		t.Error("nothing was ever killed")
	}
	// Nothing of those that were killed is left, and runners go on.
	if n := queryOne[int](t, db, `
		select (select count(*) from daybook.cursor where name like 'rebuild:%')
			+ (select count(*) from pg_class where relnamespace = 'daybook_rebuild'::regnamespace)`); n != 0 {
		t.Errorf("%d cursors and relations are left behind", n)
	}
	newStoryteller(2, 30).tell(t, db, 50)
	catchUp(t, db, 0)
	mustEqualModel(t, db)
}
