package inventory

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	mathrand "math/rand/v2"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/domain/shape"
	"triprize/internal/platform/postgres"
)

// FillStep is the most positions that one statement makes or deletes. A step takes a
// small part of a statement's timeout.
const FillStep = 10_000

// Filler makes the positions of one campaign, each with the price of its layer and a rank
// from a new secret permutation. It is for one goroutine. All its functions need the lock
// of a campaign that is not published.
//
// How far it has come stands in position_fills, so another process can go on. While there
// is a row, the positions are not shown.
type Filler struct {
	campaignID uuid.UUID
	seed       []byte
	ranks      []int // the permutation of seed
}

// NewFiller returns a Filler.
func NewFiller(campaignID uuid.UUID) *Filler { return &Filler{campaignID: campaignID} }

// Fill makes what is missing of the positions, in the transaction that publishes the
// campaign: they are shown from its commit on.
func Fill(ctx context.Context, tx pgx.Tx, campaignID uuid.UUID, plan Plan) error {
	f := NewFiller(campaignID)
	for {
		done, err := f.Step(ctx, tx, plan)
		if err != nil {
			return err
		}
		if done {
			break
		}
	}
	_, err := tx.Exec(ctx, `DELETE FROM position_fills WHERE campaign_id = $1`, campaignID)
	return fault.At(err, "inventory.Fill(%s)", campaignID)
}

// Plan is what positions are made from.
type Plan struct {
	Shape  shape.Shape
	Prices []money.Amount // of the layers; Prices[0] is that of layer 1
}

// fill is a row of position_fills.
type fill struct {
	draft, seed []byte
	made        int
}

// Step makes the next positions, FillStep at most. Those of another draft are deleted
// first, as many in a step. done reports that all exist.
func (f *Filler) Step(ctx context.Context, tx pgx.Tx, plan Plan) (done bool, err error) {
	var now fill
	total, draft := plan.Shape.Count(), plan.hash()
	err = tx.QueryRow(ctx, `SELECT draft, seed, made FROM position_fills WHERE campaign_id = $1`, f.campaignID).Scan(&now.draft, &now.seed, &now.made)
	switch {
	case errors.Is(err, pgx.ErrNoRows) && total <= FillStep: // the caller publishes them in this transaction
		return true, f.make(ctx, tx, fill{seed: newSeed()}, plan, total)
	case errors.Is(err, pgx.ErrNoRows):
		now = fill{draft: draft[:], seed: newSeed()}
		_, err = tx.Exec(ctx, `INSERT INTO position_fills (campaign_id, draft, seed, made) VALUES ($1, $2, $3, 0)`, f.campaignID, now.draft, now.seed)
	case err == nil && string(now.draft) != string(draft[:]): // made for another draft
		_, err = empty(ctx, tx, f.campaignID)
		return false, err
	}
	if err != nil {
		return false, fmt.Errorf("inventory.Filler.Step(%s): %w", f.campaignID, err)
	}
	n := min(FillStep, total-now.made)
	if n == 0 {
		return true, nil
	}
	if err := f.make(ctx, tx, now, plan, n); err != nil {
		return false, err
	}
	tag, err := tx.Exec(ctx, `UPDATE position_fills SET made = made + $2 WHERE campaign_id = $1 AND made = $3`, f.campaignID, n, now.made)
	if err == nil {
		err = postgres.Exactly(1, "fills")(tag)
	}
	if err != nil {
		return false, fmt.Errorf("inventory.Filler.Step(%s): %w", f.campaignID, err)
	}
	return now.made+n == total, nil
}

// make inserts n positions after those that are made.
func (f *Filler) make(ctx context.Context, tx pgx.Tx, now fill, plan Plan, n int) error {
	if f.ranks == nil || string(f.seed) != string(now.seed) || len(f.ranks) != plan.Shape.Count() {
		f.seed, f.ranks = now.seed, permutation([32]byte(now.seed), plan.Shape.Count())
	}
	rows := make([][]any, 0, n)
	for p := range plan.Shape.From(now.made + 1) {
		if len(rows) == n {
			break
		}
		rows = append(rows, []any{f.campaignID, p.Layer, p.Column, f.ranks[now.made+len(rows)], plan.Prices[p.Layer-1]})
	}
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"positions"},
		[]string{"campaign_id", "layer", "col", "rank", "price"}, pgx.CopyFromRows(rows))
	return fault.At(err, "inventory.Filler.make(%s)", f.campaignID)
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

// hash identifies a plan.
func (p Plan) hash() [sha256.Size]byte {
	text := make([]byte, 0, 16*len(p.Prices))
	for _, price := range p.Prices {
		text = binary.BigEndian.AppendUint64(text, uint64(price)) //nolint:gosec // the two's complement is what is meant
	}
	if p.Shape.BaseLength() == 0 {
		text = append(text, "positions of each layer"...)
		for layer := range p.Shape.Layers() {
			text = binary.BigEndian.AppendUint64(text, uint64(p.Shape.InLayer(layer+1))) //nolint:gosec // not negative
		}
	}
	return sha256.Sum256(text)
}

func newSeed() []byte {
	seed := make([]byte, 32)
	_, _ = rand.Read(seed) // never fails
	return seed
}

// permutation returns 0 … n-1 in the random order of a secret seed.
func permutation(seed [32]byte, n int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	mathrand.New(mathrand.NewChaCha8(seed)).Shuffle(n, func(i, j int) { order[i], order[j] = order[j], order[i] }) //nolint:gosec // ChaCha8 with a secret seed is a cryptographic generator
	return order
}
