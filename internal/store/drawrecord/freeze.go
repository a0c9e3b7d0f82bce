package drawrecord

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fairdraw"
	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// Freeze is a stored freeze record.
type Freeze struct {
	CampaignID uuid.UUID
	Record     []byte // canonical JSON
	Root       fairdraw.Hash
	Count      int
	FrozenAt   time.Time // whole microseconds
	Round      *uint64   // of the beacon; nil: none
}

// FreezeOf returns the freeze of a campaign, or false when it is not frozen.
func FreezeOf(ctx context.Context, db postgres.DB, id uuid.UUID) (Freeze, bool, error) {
	f := Freeze{CampaignID: id}
	var root []byte
	err := db.QueryRow(ctx, `SELECT record, root, sold, frozen_at, round FROM freezes WHERE campaign_id = $1`, id).
		Scan(&f.Record, &root, &f.Count, &f.FrozenAt, &f.Round)
	if errors.Is(err, pgx.ErrNoRows) {
		return Freeze{}, false, nil
	}
	if err != nil {
		return Freeze{}, false, fmt.Errorf("drawrecord.FreezeOf(%s): %w", id, err)
	}
	f.Root = fairdraw.Hash(root)
	return f, true, nil
}

// InsertFreeze stores a freeze and its subtrees, in order. The primary key refuses a second.
func InsertFreeze(ctx context.Context, tx pgx.Tx, f Freeze, subtrees []fairdraw.Subtree) error {
	_, err := tx.Exec(ctx, `INSERT INTO freezes (campaign_id, record, root, sold, frozen_at, round) VALUES ($1, $2, $3, $4, $5, $6)`,
		f.CampaignID, string(f.Record), f.Root[:], f.Count, f.FrozenAt, f.Round)
	if err != nil {
		return fmt.Errorf("drawrecord.InsertFreeze(%s): %w", f.CampaignID, err)
	}
	rows := make([][]any, len(subtrees))
	for i, s := range subtrees {
		rows[i] = []any{f.CampaignID, i, s.First.Layer, s.First.Column, s.Hash[:]}
	}
	_, err = tx.CopyFrom(ctx, pgx.Identifier{"freeze_subtrees"}, []string{"campaign_id", "number", "layer", "col", "hash"}, pgx.CopyFromRows(rows))
	return fault.At(err, "drawrecord.InsertFreeze(%s): the subtrees", f.CampaignID)
}

// SubtreesOf returns the stored nodes of a frozen tree in order.
func SubtreesOf(ctx context.Context, db postgres.DB, id uuid.UUID) ([]fairdraw.Subtree, error) {
	list, err := postgres.Collect(ctx, db, func(row pgx.CollectableRow) (s fairdraw.Subtree, err error) {
		var hash []byte
		if err = row.Scan(&s.First.Layer, &s.First.Column, &hash); err == nil {
			s.Hash = fairdraw.Hash(hash)
		}
		return s, err
	}, `SELECT layer, col, hash FROM freeze_subtrees WHERE campaign_id = $1 ORDER BY number`, id)
	return list, fault.At(err, "drawrecord.SubtreesOf(%s)", id)
}
