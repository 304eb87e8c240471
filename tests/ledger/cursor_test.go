package ledger_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/ledger"
	"github.com/daybook-go/daybook/tests/pgtest"
)

func TestCursor(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	relay := db.AsRole(t, "daybook_relay")
	const name = "it's a \"cursor\""
	cursor, err := ledger.OpenCursor(t.Context(), relay, name, 7)
	if want := (ledger.Cursor{Epoch: 1, Position: 7}); err != nil || cursor != want {
		t.Fatalf("opened at %+v, %v; want %+v", cursor, err, want)
	}
	// Opened again it is where it was, whatever start is asked for.
	if again, err := ledger.OpenCursor(t.Context(), relay, name, 0); err != nil || again != cursor {
		t.Errorf("opened again at %+v, %v", again, err)
	}
	if err := ledger.MoveCursor(t.Context(), relay, name, cursor, 9); err != nil {
		t.Fatal(err)
	}
	for what, move := range map[string]func() error{
		"from where it no longer is": func() error { return ledger.MoveCursor(t.Context(), relay, name, cursor, 10) },
		"in another epoch": func() error {
			return ledger.MoveCursor(t.Context(), relay, name, ledger.Cursor{Epoch: 2, Position: 9}, 10)
		},
		"one that was never opened":   func() error { return ledger.MoveCursor(t.Context(), relay, "other", cursor, 10) },
		"one that was opened at zero": func() error { return ledger.MoveCursor(t.Context(), relay, name, ledger.Cursor{Epoch: 1}, 10) },
	} {
		if err := move(); !errors.Is(err, ledger.ErrCursorMoved) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if at, err := ledger.OpenCursor(t.Context(), relay, name, 0); err != nil || at.Position != 9 {
		t.Errorf("after the refused moves at %+v, %v", at, err)
	}

	// It moves with the caller's transaction or not at all.
	undone := errors.New("undone")
	err = pgx.BeginFunc(t.Context(), relay, func(tx pgx.Tx) error {
		if err := ledger.MoveCursor(t.Context(), tx, name, ledger.Cursor{Epoch: 1, Position: 9}, 11); err != nil {
			return err
		}
		return undone
	})
	if at, openErr := ledger.OpenCursor(t.Context(), relay, name, 0); !errors.Is(err, undone) || openErr != nil || at.Position != 9 {
		t.Errorf("after the rollback at %+v, %v, %v", at, err, openErr)
	}
}

func TestCursorOfAnotherEpoch(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	cursor, err := ledger.OpenCursor(t.Context(), db.Pool, "reader", 5)
	if err != nil {
		t.Fatal(err)
	}
	db.Exec(t, `update daybook.meta set epoch = 2`)
	found, err := ledger.OpenCursor(t.Context(), db.Pool, "reader", 0)
	var epochErr *ledger.EpochError
	if !errors.As(err, &epochErr) || *epochErr != (ledger.EpochError{Name: "reader", Cursor: cursor, CurrentEpoch: 2}) || found != cursor {
		t.Errorf("opened at %+v, %v", found, err)
	}
	// A reader that was running when the epoch changed finds out at its next move.
	if err := ledger.MoveCursor(t.Context(), db.Pool, "reader", cursor, 6); !errors.Is(err, ledger.ErrCursorMoved) {
		t.Errorf("moved: %v", err)
	}
	if fresh, err := ledger.OpenCursor(t.Context(), db.Pool, "new reader", 0); err != nil || fresh != (ledger.Cursor{Epoch: 2}) {
		t.Errorf("a new cursor at %+v, %v", fresh, err)
	}
}

func TestCursorRaces(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const racers = 8
	race := func(do func(i int) error) (won int, errs []error) {
		results := make([]error, racers)
		var wait sync.WaitGroup
		for i := range racers {
			wait.Go(func() { results[i] = do(i) })
		}
		wait.Wait()
		for _, err := range results {
			if err == nil {
				won++
			} else {
				errs = append(errs, err)
			}
		}
		return won, errs
	}
	for i := range 20 {
		name := fmt.Sprint("reader ", i)
		var mu sync.Mutex
		opened := map[ledger.Cursor]int{}
		_, errs := race(func(i int) error {
			cursor, err := ledger.OpenCursor(t.Context(), db.Pool, name, ledger.Position(i))
			mu.Lock()
			opened[cursor]++
			mu.Unlock()
			return err
		})
		if len(errs) > 0 || len(opened) != 1 {
			t.Fatalf("opened at %v, %v", opened, errs)
		}
		for cursor := range opened {
			won, errs := race(func(i int) error {
				return ledger.MoveCursor(t.Context(), db.Pool, name, cursor, cursor.Position+1+ledger.Position(i))
			})
			for _, err := range errs {
				if !errors.Is(err, ledger.ErrCursorMoved) {
					t.Error(err)
				}
			}
			if won != 1 {
				t.Errorf("%d moved the cursor from one place", won)
			}
		}
	}
	if n := one[int64](t, db.Pool, `select count(*) from daybook.cursor`); n != 20 {
		t.Errorf("%d cursors", n)
	}
}

// A transaction whose snapshot is older than the cursor can't see it, and must not hang or make a second one.
func TestCursorInvisibleToASnapshot(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	err := pgx.BeginTxFunc(t.Context(), db.Pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		one[int64](t, tx, `select epoch from daybook.meta`)
		if _, err := ledger.OpenCursor(t.Context(), db.Pool, "reader", 3); err != nil {
			return err
		}
		_, err := ledger.OpenCursor(t.Context(), tx, "reader", 4)
		return err
	})
	if err == nil {
		t.Error("opened a cursor that cannot be seen")
	}
	if at, err := ledger.OpenCursor(t.Context(), db.Pool, "reader", 0); err != nil || at.Position != 3 {
		t.Errorf("at %+v, %v", at, err)
	}
}
