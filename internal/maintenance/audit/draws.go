package audit

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fairdraw"
	"triprize/internal/domain/triangle"
	"triprize/internal/service/draw"
	"triprize/internal/store/campaign"
	"triprize/internal/store/purchase"
)

// checkDraws repeats every draw from its commitment and its frozen list, and compares
// the winners and the awarded prizes.
func checkDraws(ctx context.Context, tx pgx.Tx) ([]Violation, error) {
	rows, err := tx.Query(ctx, `SELECT campaign_id FROM draws ORDER BY campaign_id`)
	if err != nil {
		return nil, err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, err
	}
	var found []Violation
	for _, id := range ids {
		wrong, err := redo(ctx, tx, id)
		if err != nil {
			return nil, err
		}
		if wrong != "" {
			found = append(found, Violation{"a draw can be redone from its commitment and frozen list", fmt.Sprintf("campaign %s: %s", id, wrong)})
		}
	}
	return found, nil
}

// redo repeats one draw and returns what is wrong with it, or an empty text.
func redo(ctx context.Context, tx pgx.Tx, id uuid.UUID) (wrong string, err error) {
	bound, ok, err := campaign.CommitmentOf(ctx, tx, id)
	if err != nil || !ok {
		return "it has no commitment", err
	}
	var secret, root, randomness []byte
	err = tx.QueryRow(ctx, `SELECT secret, root, randomness FROM draws WHERE campaign_id = $1`, id).Scan(&secret, &root, &randomness)
	if err != nil {
		return "", err
	}
	if c := fairdraw.Commitment(id, bound.Rules, secret); !slices.Equal(c[:], bound.Commitment) {
		return "the revealed secret is not the one committed to", nil
	}
	frozen, err := campaign.FrozenRoot(ctx, tx, id)
	if err != nil {
		return "", err
	}
	sold, err := purchase.SoldList(ctx, tx, id)
	if err != nil {
		return "", err
	}
	now, err := fairdraw.Root(sold)
	if err != nil || now != frozen || !slices.Equal(root, frozen[:]) {
		return "the sold list is not the one that was frozen", err
	}
	var rules fairdraw.Rules
	if err := json.Unmarshal(bound.Rules, &rules); err != nil {
		return "the rules cannot be read", nil //nolint:nilerr // that is the finding
	}
	want := fairdraw.Select(rules.Prizes, fairdraw.Lines(sold), fairdraw.NewStream(fairdraw.Entropy(secret, id, frozen, randomness)))
	return compare(ctx, tx, id, fairdraw.Positions(want), len(want))
}

// compare compares the published winners and the awarded prizes with the expected ones.
func compare(ctx context.Context, tx pgx.Tx, id uuid.UUID, want []triangle.Position, prizes int) (wrong string, err error) {
	published, _, err := draw.Get(ctx, tx, id)
	if err != nil {
		return "", err
	}
	var got []triangle.Position
	for _, w := range published.Winners {
		if w.Column != nil {
			got = append(got, triangle.Position{Layer: w.Layer, Column: *w.Column})
		}
	}
	if len(published.Winners) != prizes || !slices.Equal(got, want) {
		return "the published winners do not follow from the inputs", nil
	}
	rows, err := tx.Query(ctx, `SELECT layer, winning_column FROM prizes WHERE campaign_id = $1 AND winning_column IS NOT NULL ORDER BY number`, id)
	if err != nil {
		return "", err
	}
	awarded, err := pgx.CollectRows(rows, pgx.RowToStructByPos[triangle.Position])
	if err != nil {
		return "", err
	}
	if !slices.Equal(awarded, want) {
		return "the prizes were not awarded as published", nil
	}
	return "", nil
}
