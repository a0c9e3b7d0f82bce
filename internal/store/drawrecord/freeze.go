package drawrecord

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize.example/draw/fairdraw"
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

// InsertFreeze stores a freeze with its list, and the subtrees over it, in order. The primary
// key refuses a second.
func InsertFreeze(ctx context.Context, tx pgx.Tx, f Freeze, list []fairdraw.SoldLine, subtrees []fairdraw.Subtree) error {
	_, err := tx.Exec(ctx, `INSERT INTO freezes (campaign_id, record, root, sold, frozen_at, round) VALUES ($1, $2, $3, $4, $5, $6)`,
		f.CampaignID, string(f.Record), f.Root[:], f.Count, f.FrozenAt, f.Round)
	if err != nil {
		return fmt.Errorf("drawrecord.InsertFreeze(%s): %w", f.CampaignID, err)
	}
	pages, number := slices.Collect(slices.Chunk(list, fairdraw.SubtreeLeaves)), 0
	_, err = tx.CopyFrom(ctx, pgx.Identifier{"freeze_subtrees"}, []string{"campaign_id", "number", "hash", "leaves"},
		pgx.CopyFromFunc(func() ([]any, error) {
			if number == len(subtrees) {
				return nil, nil
			}
			var leaves []byte
			for _, line := range pages[number] {
				leaves = line.AppendLeaf(leaves)
			}
			number++
			return []any{f.CampaignID, number - 1, subtrees[number-1].Hash[:], leaves}, nil
		}))
	return fault.At(err, "drawrecord.InsertFreeze(%s): the list", f.CampaignID)
}
