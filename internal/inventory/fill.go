package inventory

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/domain/shape"
)

// FillStep is the most positions that one statement makes or deletes. A step takes a
// small part of a statement's timeout.
const FillStep = 10_000

// Plan is what positions are made from.
type Plan struct {
	Shape  shape.Shape
	Prices []money.Amount // of the layers; Prices[0] is that of layer 1
}

// hash identifies a plan.
func (p Plan) hash() []byte {
	text := fmt.Append(nil, p.Prices)
	for layer := range p.Shape.Layers() {
		text = fmt.Append(text, " ", p.Shape.InLayer(layer+1))
	}
	hash := sha256.Sum256(text)
	return hash[:]
}

// Fill makes what is missing of the positions, in the transaction that publishes the
// campaign: they are shown from its commit on.
func Fill(ctx context.Context, tx pgx.Tx, campaignID uuid.UUID, plan Plan) error {
	for done := false; !done; {
		var err error
		if done, err = FillNext(ctx, tx, campaignID, plan); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, `DELETE FROM position_fills WHERE campaign_id = $1`, campaignID)
	return fault.At(err, "inventory.Fill(%s)", campaignID)
}

// FillNext makes the next positions, FillStep at most, each with the price of its layer and a
// secret random rank. Those of another draft are deleted first, as many in a step. done reports
// that all exist. It needs the lock of a campaign that is not published.
//
// How far it has come stands in position_fills, so another process can go on. While there
// is a row, the positions are not shown.
func FillNext(ctx context.Context, tx pgx.Tx, campaignID uuid.UUID, plan Plan) (done bool, err error) {
	var draft []byte // null: positions of an older draft are being deleted
	var made int
	err = tx.QueryRow(ctx, `
		INSERT INTO position_fills AS f (campaign_id, draft, made) VALUES ($1, $2, 0)
		ON CONFLICT (campaign_id) DO UPDATE SET made = f.made RETURNING draft, made`, campaignID, plan.hash()).Scan(&draft, &made)
	if err != nil {
		return false, fmt.Errorf("inventory.FillNext(%s): %w", campaignID, err)
	}
	if !bytes.Equal(draft, plan.hash()) {
		_, err = empty(ctx, tx, campaignID)
		return false, err
	}
	n := min(FillStep, plan.Shape.Count()-made)
	random, rows := make([]byte, 4*n), make([][]any, 0, n)
	_, _ = rand.Read(random) // never fails
	for p := range plan.Shape.From(made + 1) {
		if len(rows) == n {
			break
		}
		rank := binary.BigEndian.Uint32(random[4*len(rows):]) >> 1 // two positions may have the same: then their order is any
		rows = append(rows, []any{campaignID, p.Layer, p.Column, rank, plan.Prices[p.Layer-1]})
	}
	_, err = tx.CopyFrom(ctx, pgx.Identifier{"positions"}, []string{"campaign_id", "layer", "col", "rank", "price"}, pgx.CopyFromRows(rows))
	if err == nil {
		_, err = tx.Exec(ctx, `UPDATE position_fills SET made = made + $2 WHERE campaign_id = $1`, campaignID, n)
	}
	return made+n == plan.Shape.Count(), fault.At(err, "inventory.FillNext(%s)", campaignID)
}

// Discard deletes positions that were made for a campaign which was cancelled before it was
// published, FillStep at most. more is false when it has found none: then it has done
// nothing. It locks the campaign, and leaves out one that is locked.
func Discard(ctx context.Context, tx pgx.Tx) (deleted int, more bool, err error) {
	var id uuid.UUID
	err = tx.QueryRow(ctx, `
		WITH filled AS (SELECT campaign_id FROM position_fills)
		SELECT id FROM campaigns
		WHERE id = ANY(ARRAY(TABLE filled)) AND state = 'cancelled' AND published_at IS NULL
		ORDER BY id LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED`).Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("inventory.Discard: %w", err)
	}
	deleted, err = empty(ctx, tx, id)
	return deleted, true, err
}

// empty deletes positions that will not be published, FillStep at most. With the last of
// them it deletes the row of position_fills. Until then the row fits no draft, not even the
// old one.
func empty(ctx context.Context, tx pgx.Tx, campaignID uuid.UUID) (deleted int, err error) {
	tag, err := tx.Exec(ctx, `
		DELETE FROM positions WHERE ctid = ANY(ARRAY(
			SELECT ctid FROM positions WHERE campaign_id = $1 LIMIT $2))`, campaignID, FillStep)
	switch {
	case err != nil:
	case tag.RowsAffected() < FillStep:
		_, err = tx.Exec(ctx, `DELETE FROM position_fills WHERE campaign_id = $1`, campaignID)
	default:
		_, err = tx.Exec(ctx, `UPDATE position_fills SET draft = NULL WHERE campaign_id = $1`, campaignID)
	}
	if err != nil {
		return 0, fmt.Errorf("inventory.empty(%s): %w", campaignID, err)
	}
	return int(tag.RowsAffected()), nil
}
