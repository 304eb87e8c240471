package jobs_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/daybook-go/daybook/commands"
)

// A claim reads about as many jobs as it takes, however many wait behind them, also in a session that made its plans while
// the table was empty. Jobs whose deadline has passed are found where they would be taken.
func TestClaimReadsWhatItTakes(t *testing.T) {
	t.Parallel()
	db, _ := newFrozen(t)
	db.Exec(t, `vacuum analyze daybook.job`)
	err := pgx.BeginFunc(t.Context(), db.Pool, func(tx pgx.Tx) error {
		claim := func() (claimed int, err error) {
			err = tx.QueryRow(t.Context(),
				`select coalesce(cardinality((daybook.claim_jobs('default', 'w', 100, 60000)).job_ids), 0)`).Scan(&claimed)
			return claimed, err
		}
		read := func() (rows int, err error) {
			err = tx.QueryRow(t.Context(), `
				select seq_tup_read + idx_tup_fetch
				from pg_stat_xact_all_tables
				where relid = 'daybook.job'::regclass`).Scan(&rows)
			return rows, err
		}
		for range 10 {
			if _, err := claim(); err != nil {
				return err
			}
		}
		// The first 200 are too late.
		_, err := tx.Exec(t.Context(), `
			insert into daybook.job (
				job_id, run_at, accepted_at, deadline, priority, attempt_budget, state, queue, type, payload
			)
			select gen_random_uuid(), $1::timestamptz - interval '1 day' + i * interval '1 second', $1,
				case when i <= 200 then $1::timestamptz end, 0, 1, 'ready', 'default', 't', 'null'
			from generate_series(1, 20000) as i`, noon)
		if err != nil {
			return err
		}
		for _, most := range []int{2000, 1000} {
			before, err := read()
			if err != nil {
				return err
			}
			claimed, err := claim()
			if err != nil {
				return err
			}
			after, err := read()
			if err != nil {
				return err
			}
			if claimed != 100 || after-before > most {
				t.Errorf("%d jobs claimed, %d rows read; want 100, at most %d", claimed, after-before, most)
			}
		}
		var cancelled int
		err = tx.QueryRow(t.Context(), `select count(*) from daybook.job where state = $1`, commands.JobCancelled).Scan(&cancelled)
		diff(t, "cancelled", 200, cancelled)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
