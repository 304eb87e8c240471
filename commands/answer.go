package commands

import (
	"database/sql"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// The columns of an answer that may be null. They take what pgx has read as it is, where a pointer would make pgx look for
// a way into it in each call, a microsecond for each column; and they take what database/sql hands over.
type (
	answerID   uuid.NullUUID
	answerText sql.NullString
	answerTime sql.NullTime
)

// ScanUUID is for pgx.
func (a *answerID) ScanUUID(v pgtype.UUID) error {
	*a = answerID{UUID: v.Bytes, Valid: v.Valid}
	return nil
}

// Scan is for database/sql.
func (a *answerID) Scan(value any) error { return (*uuid.NullUUID)(a).Scan(value) }

// ScanText is for pgx.
func (a *answerText) ScanText(v pgtype.Text) error {
	*a = answerText{String: v.String, Valid: v.Valid}
	return nil
}

// Scan is for database/sql.
func (a *answerText) Scan(value any) error { return (*sql.NullString)(a).Scan(value) }

// ScanTimestamptz is for pgx.
func (a *answerTime) ScanTimestamptz(v pgtype.Timestamptz) error {
	*a = answerTime{Time: v.Time, Valid: v.Valid}
	return nil
}

// Scan is for database/sql.
func (a *answerTime) Scan(value any) error { return (*sql.NullTime)(a).Scan(value) }
