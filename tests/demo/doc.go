// Command demo runs Daybook's main job on real input, end to end, on a PostgreSQL of its own: `make demo`.
//
// A shop in miniature takes orders over HTTP, each in one transaction with its accepted job. Its clients click
// twice, lose an answer, and reuse a key; a payment provider delivers its webhooks more than once; one order is rolled back. A
// subscriber prints what was accepted as it comes, and projections follow. At the end it shows what operators see, rebuilds and
// verifies a projection, and compares every number with what the story demands: the exit code is 1 where one differs.
//
// The server, with everything in it, lives in a temporary folder and is gone at the end.
package main
