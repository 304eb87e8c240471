package outbox

import (
	"database/sql"
	"errors"
	"fmt"
	"time"

	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/google/uuid"

	"github.com/daybook-go/daybook/ledger"
)

// SubscribeIsolationLevel is READ COMMITTED, where watermill-sql would take REPEATABLE READ: between two statements
// the transaction then has no snapshot, so that a slow handler keeps nothing from being vacuumed. The bounds of a page
// are parameters and events never change, so nothing can move under it.
func (s *subscription) SubscribeIsolationLevel() sql.IsolationLevel { return sql.LevelReadCommitted }

// SelectQuery reads the page that beginTx has found.
func (s *subscription) SelectQuery(string, string, watermillsql.OffsetsAdapter) watermillsql.Query {
	args := []any{int64(s.after), int64(s.through)}
	if s.kind == "" {
		return watermillsql.Query{Query: withLimit(pageSQL, s.pageSize), Args: args}
	}
	return watermillsql.Query{Query: withLimit(pageKindSQL, s.pageSize), Args: append(args, string(s.kind))}
}

// UnmarshalMessage reads one event. The row's offset is its position: those begin at 1, as watermill-sql takes an
// offset of 0 for "nothing was acked".
func (s *subscription) UnmarshalMessage(row watermillsql.Scanner) (watermillsql.Row, error) {
	var (
		event             ledger.Event
		jobID             uuid.NullUUID
		scope, keyPreview sql.NullString
		keyHash, body     []byte
		sequencedAt       time.Time
		pageRows          int
	)
	err := row.Scan(&event.Position, &event.ID, &event.Kind, &jobID, &scope, &keyHash, &keyPreview, &body,
		&event.RecordedAt, &sequencedAt, &pageRows)
	if err != nil {
		return watermillsql.Row{}, fmt.Errorf("daybook: read an event after position %d: %w", s.after, err)
	}
	event.JobID, event.Scope, event.KeyPreview, event.Body = jobID.UUID, scope.String, keyPreview.String, body
	event.SequencedAt = sequencedAt.UTC()
	if keyHash != nil {
		if len(keyHash) != len(ledger.KeyHash{}) {
			return watermillsql.Row{}, fmt.Errorf("daybook: the key hash at position %d has %d bytes; run daybook verify", event.Position, len(keyHash))
		}
		event.KeyHash = (*ledger.KeyHash)(keyHash)
	}
	// Positions are dense, so that a lost row shows at no cost.
	if s.kind == "" && event.Position != s.after+ledger.Position(s.read)+1 {
		return watermillsql.Row{}, fmt.Errorf("daybook: position %d is not there; run daybook verify", s.after+ledger.Position(s.read)+1)
	}
	s.read++
	s.complete, s.last = s.read == pageRows, event.Position
	return watermillsql.Row{Offset: int64(event.Position), Msg: NewMessage(event, s.source)}, nil
}

// InsertQuery refuses: events are appended by PostgreSQL, in the transaction that decides.
func (s *subscription) InsertQuery(string, message.Messages) (watermillsql.Query, error) {
	return watermillsql.Query{}, errors.New("daybook: nothing is published to the ledger; enqueue with package commands")
}

// SchemaInitializingQueries is empty: the migrations have made everything.
func (s *subscription) SchemaInitializingQueries(string) []watermillsql.Query { return nil }

// offsets is the same subscription as an offsets adapter. What watermill-sql would ask it while reading, beginTx has
// done already.
type offsets struct{ *subscription }

// AckMessageQuery moves the cursor to the last message that was acked; past a whole page also over what lies between
// its last message and its end, which is of other kinds. It begins where pageCursor has put it. For quick handlers it is
// the only write for a page, and there is none when there was nothing.
func (o offsets) AckMessageQuery(_ string, row watermillsql.Row, _ string) watermillsql.Query {
	to := ledger.Position(row.Offset)
	// watermill-sql does not ask rows for their error, so a page may have been cut off. Only where each
	// row said how many there are, and all came, is the rest known to be of other kinds.
	if o.complete && to == o.last {
		to = o.through
	}
	// The number of rows is not looked at: where somebody else has moved the cursor meanwhile, it stays as it is, and the
	// next turn begins from there.
	from := o.pageCursor.end(to)
	return watermillsql.Query{Query: ackSQL, Args: []any{o.name, o.cursor.Epoch, from, int64(to)}}
}

// dropPortal makes PostgreSQL let go of the page's snapshot. The portal of a SELECT that was read to its end keeps it
// until the next command, which without this would be the one after the last handler; one that needs no snapshot
// of its own takes its place. What it sets is set already.
const dropPortal = "set local jit = off"

// ConsumedMessageQuery writes nothing in the page's transaction. watermill-sql runs it before it hands a message over;
// before the first of a page, that is the moment to drop the page's snapshot, and before each other one, to take note
// that the one before it was acked.
func (o offsets) ConsumedMessageQuery(_ string, row watermillsql.Row, _ string, _ []byte) watermillsql.Query {
	before := o.handed
	o.handed = row
	if o.dropped {
		o.pageCursor.reached(ledger.Position(before.Offset))
		return watermillsql.Query{}
	}
	o.dropped = true
	return watermillsql.Query{Query: dropPortal}
}

// NextOffsetQuery is empty; it is for adapters that select by offset inside their SelectQuery.
func (offsets) NextOffsetQuery(string, string) watermillsql.Query { return watermillsql.Query{} }

// BeforeSubscribingQueries is empty: Subscribe has opened the cursor.
func (offsets) BeforeSubscribingQueries(string, string) []watermillsql.Query { return nil }
