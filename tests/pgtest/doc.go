// Package pgtest gives each test a PostgreSQL database of its own, on a machine where nothing has
// been set up.
//
// A package whose tests need a database has one TestMain:
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//
// and each test takes what it needs:
//
//	db := pgtest.New(t)                    // migrated, empty, dropped when the test ends
//	queue, err := commands.New(db.Pool, …)
//	db.FreezeClock(t, noon)                // daybook.clock() stands still
//
// # Which server
//
// DAYBOOK_TEST_DATABASE_URL, else DATABASE_URL, names a server to use; its user needs to be a
// superuser. With neither set, the test processes of a user share one cluster, made and started by
// the first of them from the binaries that [localpg.Find] finds. Durability is switched off there,
// so it is fast. It is kept in memory where the system has a large enough file system for that: a
// database takes 23 ms there and 120 ms on an ext4 disk. Nothing in it is worth keeping, and once
// it is stopped it is removed.
//
// Each test process holds a lock for as long as it lives. A small keeper process, the test binary
// started a second time, stops the cluster when nobody has held that lock for half a minute. Locks
// end with their process, so one that was killed keeps nothing running.
//
// DAYBOOK_PGTEST_DIR moves the shared cluster to another folder, DAYBOOK_PGTEST_IDLE changes the
// half minute.
//
// # Databases
//
// The migrations run once, into a template whose name has their hash; a test's database is a copy
// of it. Names say which process made them, and when; those whose process has gone without dropping
// them are dropped by the next.
//
// DAYBOOK_TEST_MUTATION names a file of SQL to run in each of them: see the command tests/mutation.
//
// Crash, restart and log tests do to a server what others must not see: [NewCluster] gives them one
// of their own, with fsync on.
package pgtest
