// Package projections keeps views of the ledger: tables that are filled from events, that operators read, and that can
// be built anew at any time.
//
// A [Projection] is a name, a version, tables, and a [Fold]. A fold gets a transaction and a slice of events, nothing
// else; it has nothing to publish with, so that building a view anew can never send anything.
//
//   - [Runner] folds what is new. A projection's rows and its cursor move in one transaction, by compare-and-set on
//     the cursor, so that each event counts exactly once, also when two runners compete. [Group] reads the ledger once for
//     several projections, and folds a batch into all of them in one transaction.
//   - [Rebuild] fills shadow tables beside the live ones, from position 1, and swaps them in one short transaction;
//     [RebuildAll] reads the ledger once for several projections, and [DryRun] says what it would do.
//   - [Verify] computes a projection anew and compares it with the live rows.
//   - [Builtin] returns the views that Daybook brings along; [DecisionRates], [Keys], [Conflicts] and [Jobs] read them.
//
// # Why a fold names its tables without a schema
//
// The same fold, with the same statements, fills three sets of tables: the live ones, the shadow ones of a rebuild
// (schema S_rebuild, where S is the schema of the live ones), and temporary ones for Verify. Which of them, the
// runner says by pinning
//
//	set local search_path = pg_catalog, <that schema>, pg_temp
//
// inside the transaction, right before the fold and only for it. So a fold's SQL stays plain text that is never
// assembled, and nothing else that a session's search_path holds is ever found: functions and operators are
// PostgreSQL's own unless they are qualified, a temporary table never hides a live one, and a fold that reaches for a
// table which is not its projection's fails in its first rebuild. Constraints and indexes have the same names in all
// three.
//
// # Locks
//
// A runner locks its cursor first and its tables after, and a group one projection after the other in the order of their
// names. The swap of a rebuild does the same. Whoever applies several runners in one transaction does so in the order
// of their names, too.
//
// # What a rebuild asks of the tables
//
// Plain tables with a primary key, of one owner, in one schema. What hangs on them is made anew for the shadow
// tables: columns with defaults, constraints, indexes, storage options, comments, grants. SQL views on top of them
// are redefined in the swap, since a view is bound to a table and not to its name. What cannot be carried over is
// refused before anything is done: foreign keys, triggers, row security, inheritance and partitions, publications
// that name the table, materialized views and functions bound to the table.
//
// # A new version
//
// A fold that gives other rows gets another Version, and the tables are rebuilt; a runner of the old build is then
// refused with a [*VersionError]. Where the new version has other columns, the projection carries its DDL: the shadow
// tables are made by it, while the live ones and their readers go on as they are. Until the swap nothing of the new
// version can be seen. Whatever an old build reads must be there after it, or be read no more: columns are dropped a
// version later than they were last read.
//
// # How a rebuild is made fast
//
// Indexes that enforce nothing are made when the tables are full, but for FoldIndexes. Where Slicing says that events
// fall apart by key or by job, several transactions fold at once, each its slice and with a cursor of its own.
//
// Old tables stay in S_old until [DropOld]. The schemas daybook_rebuild and daybook_old are made by Daybook's
// migrations; for tables in another schema, have a migration make its two, owned by the tables' owner.
//
// # Long readers
//
// The swap asks for its locks with a short timeout and tries again, so that a long reader of a view delays the swap and
// not the readers behind it. A transaction at REPEATABLE READ or SERIALIZABLE that took its snapshot before the
// rebuild was complete and turns to the view only after the swap sees the new tables as its snapshot has them:
// incomplete. Such a reader takes an ACCESS SHARE lock on the view first, before its first query; [Verify] does.
package projections
