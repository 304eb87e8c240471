// Command mutation breaks the ledger's SQL in small ways, one at a time, and shows that the tests notice each.
//
// A mutation replaces a few words in one function of the migrations. The test process runs the broken function in each
// of its databases, over the real one (DAYBOOK_TEST_MUTATION, see package pgtest); no file of the project is touched.
// First the same tests are run unbroken: a test that fails anyway catches nothing.
//
//	go run ./tests/mutation               all of them
//	go run ./tests/mutation -list         what there is
//	go run ./tests/mutation -only edge    those with edge in their name
//
// It exits with 1 where a mutation survives, and with 2 where something else is wrong, such as a mutation whose text is
// no longer in the function. The tests need a PostgreSQL, which they find or start as always.
package main
