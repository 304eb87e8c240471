package commands_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/google/uuid"

	"github.com/daybook-go/daybook/commands"
	"github.com/daybook-go/daybook/tests/pgtest"
)

// hotInput is a call: a request with this payload, or, where there is none, the clock moved past every window.
type hotInput struct{ payload string }

// hotOutput is its answer. Nothing is true of a call that was rolled back: it must be as if it had never been.
type hotOutput struct {
	outcome commands.EnqueueOutcome
	job     uuid.UUID
	nothing bool
}

// hotState is what one key stands for: nothing, or a job that was asked for with a payload.
type hotState struct {
	payload string
	job     uuid.UUID
}

var hotKey = porcupine.Model{
	Init: func() any { return hotState{} },
	Step: func(state, input, output any) (bool, any) {
		s, in, out := state.(hotState), input.(hotInput), output.(hotOutput)
		switch {
		case out.nothing:
			return true, s
		case in.payload == "":
			return true, hotState{}
		case s.job == uuid.Nil:
			return out.outcome == commands.OutcomeAccepted, hotState{in.payload, out.job}
		case s.payload == in.payload:
			return out.outcome == commands.OutcomeReplayed && out.job == s.job, s
		default:
			return out.outcome == commands.OutcomeConflictRejected && out.job == s.job, s
		}
	},
}

// Callers of one hot key, in transactions of their own and in those that are committed or rolled back, while its windows run
// out: all answers fit one order, in which each call happened at an instant between its beginning and its end.
func TestHotKeyIsLinearizable(t *testing.T) {
	t.Parallel()
	const callers, calls = 8, 60
	ctx := context.Background()
	db := pgtest.New(t, pgtest.MaxConns(callers))
	steerClock(t, db, noon)
	queue := newQueue(t, db.Pool)
	var (
		mu      sync.Mutex
		history []porcupine.Operation
		start   = time.Now()
		all     sync.WaitGroup
	)
	for caller := range callers {
		random := rand.New(rand.NewPCG(uint64(caller), uint64(start.UnixNano())))
		all.Go(func() {
			for n := range calls {
				in := hotInput{[]string{"1", "2"}[random.IntN(10)/9]}
				kind := random.IntN(10)
				if caller == 0 && n%10 == 9 {
					in.payload = ""
				}
				called := time.Since(start)
				outs, err := callHotKey(ctx, db, queue, in, kind)
				returned := time.Since(start)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, out := range outs {
					history = append(history, porcupine.Operation{
						ClientId: caller, Input: in, Call: called.Nanoseconds(), Output: out, Return: returned.Nanoseconds(),
					})
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	if got := porcupine.CheckOperationsTimeout(hotKey, history, time.Minute); got != porcupine.Ok {
		t.Errorf("the history of %d calls (seed %d) is not linearizable: %s", len(history), start.UnixNano(), got)
		for _, op := range history {
			t.Logf("%d %d-%d %+v %+v", op.ClientId, op.Call, op.Return, op.Input, op.Output)
		}
	}
}

// callHotKey makes one call and returns its answers. Of ten four are alone, two are batches, two commit with a transaction and
// two are rolled back. The clock may move between the two requests of a batch, so each happened at an instant of its own.
func callHotKey(ctx context.Context, db *pgtest.DB, queue *commands.Queue, in hotInput, kind int) ([]hotOutput, error) {
	if in.payload == "" {
		_, err := db.Pool.Exec(ctx, "update public.steered set at = at + interval '1 day'")
		return []hotOutput{{}}, err
	}
	o := order("hot", in.payload)
	if kind >= 4 && kind < 6 {
		results, err := queue.DecideMany(ctx, []commands.EnqueueOptions{o, o})
		outs := make([]hotOutput, len(results))
		for i, result := range results {
			outs[i] = hotOutput{outcome: result.Outcome, job: result.JobID}
		}
		return outs, err
	}
	if kind < 4 {
		result, err := queue.Decide(ctx, o)
		return []hotOutput{{outcome: result.Outcome, job: result.JobID}}, err
	}
	tx, err := db.Pool.Begin(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	result, err := queue.DecideTx(ctx, tx, o)
	if err == nil && kind < 8 {
		err = tx.Commit(ctx)
	}
	nothing := kind >= 8 && result.Outcome == commands.OutcomeAccepted
	return []hotOutput{{outcome: result.Outcome, job: result.JobID, nothing: nothing}}, err
}
