// Package commands is what may be asked of Daybook: enqueue work under an idempotency key, alone or in a batch, in
// a transaction of its own or in the caller's.
//
// A [Queue] sends requests; PostgreSQL decides. What it decided is an [EnqueueOutcome]. The first request of a key
// is accepted. The same request again is replayed: it gets the first job's ID and writes nothing at all. Another
// request under the same key is a conflict, which [Queue.Enqueue] returns as an [*EnqueueIdempotencyConflictError]
// and [Queue.Decide] as a value. Two requests are the same when all their material fields are; payloads are compared
// as JSON values.
//
// # Whose transaction
//
// X runs in a transaction of its own; XTx in the caller's, and the job commits or vanishes with the caller's rows.
// No refusal (an invalid request, a conflict, a stale claim, a job or key that is not there or not in the right state) aborts
// that transaction: the caller may go on in it. Errors of the moment
// ([*CallError]) do abort it, as any failed statement does; [Retryable] says whether to begin anew.
//
// A conflict is appended to the ledger in the transaction that met it. A caller that returns the error from
// pgx.BeginFunc rolls it back with the rest; [Queue.InTx] keeps it, and [Queue.RecordRejection] writes it afterwards.
package commands
