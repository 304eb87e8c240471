// Package migrations brings a database to the schema that this version of Daybook needs.
//
// Migrations only go forward. They are embedded, checksummed, and applied all pending ones in one transaction under
// an advisory transaction lock, so that processes that start at once wait for one another and a failure leaves
// nothing behind. [Print] writes them out for those who apply migrations with a tool of their own.
package migrations
