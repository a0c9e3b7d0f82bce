package drawrecord

import (
	"context"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// KeyCheck returns the sealed text that shows whether a key is the right one; nil: there is
// none yet.
func KeyCheck(ctx context.Context, db postgres.DB) (sealed []byte, err error) {
	err = db.QueryRow(ctx, `SELECT sealed FROM draw_key_check`).Scan(&sealed)
	_, err = postgres.Found(err)
	return sealed, fault.At(err, "drawrecord.KeyCheck")
}

// InsertKeyCheck stores the sealed text, unless there is one.
func InsertKeyCheck(ctx context.Context, db postgres.DB, sealed []byte) error {
	_, err := db.Exec(ctx, `INSERT INTO draw_key_check (sealed) VALUES ($1) ON CONFLICT DO NOTHING`, sealed)
	return fault.At(err, "drawrecord.InsertKeyCheck")
}

// ReplaceKeyCheck stores the sealed text in the place of any other.
func ReplaceKeyCheck(ctx context.Context, db postgres.DB, sealed []byte) error {
	_, err := db.Exec(ctx, `INSERT INTO draw_key_check (sealed) VALUES ($1) ON CONFLICT (one) DO UPDATE SET sealed = excluded.sealed`, sealed)
	return fault.At(err, "drawrecord.ReplaceKeyCheck")
}
