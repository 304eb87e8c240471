// Command peers measures Daybook against others, side by side on one PostgreSQL, and prints the table of goals and
// what was reached.
//
// It starts a cluster of its own, unless DAYBOOK_BENCH_DATABASE_URL names one, and gives each case new databases:
// one with Daybook's schema, which also holds the tables of the hand-written SQL, and one with River's. A case runs
// its contenders in alternating rounds, one at a time, so that whatever else the machine does meets all of them. See
// README.md beside this file for how to read the result.
//
// A new line of the table is a new file with a function that returns its [Case], and that function's name in cases.
package main
