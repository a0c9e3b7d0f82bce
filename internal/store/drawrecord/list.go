package drawrecord

import (
	"context"
	"iter"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize.example/draw/fairdraw"
	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// listPage is the leaves of how many subtrees one statement reads.
const listPage = 8

// SubtreesOf returns the stored nodes of a frozen tree in order. It reads no more of their
// leaves than the place of the first.
func SubtreesOf(ctx context.Context, db postgres.DB, id uuid.UUID) ([]fairdraw.Subtree, error) {
	list, err := postgres.Collect(ctx, db, func(row pgx.CollectableRow) (s fairdraw.Subtree, err error) {
		var hash, first []byte
		if err = row.Scan(&hash, &first); err == nil {
			s = fairdraw.Subtree{First: fairdraw.LineOf(first).Position(), Hash: fairdraw.Hash(hash)}
		}
		return s, err
	}, `SELECT hash, substring(leaves FROM 1 FOR $2) FROM freeze_subtrees WHERE campaign_id = $1 ORDER BY number`, id, fairdraw.LeafSize)
	return list, fault.At(err, "drawrecord.SubtreesOf(%s)", id)
}

// ListOf yields the frozen list of a campaign, by layer and column. It reads it page by page,
// and ends at the first error.
func ListOf(ctx context.Context, db postgres.DB, id uuid.UUID) iter.Seq2[fairdraw.SoldLine, error] {
	return func(yield func(fairdraw.SoldLine, error) bool) {
		for number := 0; ; number += listPage {
			lines, err := linesUnder(ctx, db, id, number, listPage)
			if err != nil {
				yield(fairdraw.SoldLine{}, err)
				return
			}
			for _, line := range lines {
				if !yield(line, nil) {
					return
				}
			}
			if len(lines) < listPage*fairdraw.SubtreeLeaves {
				return
			}
		}
	}
}

// LinesUnder returns the lines of the frozen list that stand under one subtree.
func LinesUnder(ctx context.Context, db postgres.DB, id uuid.UUID, number int) ([]fairdraw.SoldLine, error) {
	return linesUnder(ctx, db, id, number, 1)
}

func linesUnder(ctx context.Context, db postgres.DB, id uuid.UUID, number, subtrees int) ([]fairdraw.SoldLine, error) {
	pages, err := postgres.Collect(ctx, db, pgx.RowTo[[]byte], `
		SELECT leaves FROM freeze_subtrees WHERE campaign_id = $1 AND number >= $2 AND number < $3 ORDER BY number`, id, number, number+subtrees)
	if err != nil {
		return nil, fault.At(err, "drawrecord.linesUnder(%s, %d)", id, number)
	}
	var lines []fairdraw.SoldLine
	for _, leaves := range pages {
		for leaf := range slices.Chunk(leaves, fairdraw.LeafSize) {
			lines = append(lines, fairdraw.LineOf(leaf))
		}
	}
	return lines, nil
}
