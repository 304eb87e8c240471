// Package cli is the commands of daybook: one file for each, over the public packages of the module.
//
// A command writes what it was asked for to standard output, as a table or, with --json, as one JSON document (a line
// each for streams). Everything else goes to standard error: an error is one line and, where there is something to
// do about it, a line with a hint. The exit codes are those of [ExitCodes].
//
// Keys and payloads are read from standard input, files or environment variables, never from the command line, which
// other users of the machine can see; and none is ever written.
package cli
