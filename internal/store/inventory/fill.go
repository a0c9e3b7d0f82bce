package inventory

import (
	"context"
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/money"
	"triprize/internal/domain/triangle"
)

// Fill makes the positions of a campaign, each with the price of its layer
// (prices[0] is layer 1) and a rank from a new secret permutation.
func Fill(ctx context.Context, tx pgx.Tx, campaignID uuid.UUID, prices []money.Amount) error {
	ranks := permutation(triangle.Count(len(prices)))
	rows := make([][]any, 0, len(ranks))
	for p := range triangle.All(len(prices)) {
		rows = append(rows, []any{campaignID, p.Layer, p.Column, ranks[len(rows)], prices[p.Layer-1]})
	}
	_, err := tx.CopyFrom(ctx, pgx.Identifier{"positions"},
		[]string{"campaign_id", "layer", "col", "rank", "price"}, pgx.CopyFromRows(rows))
	if err != nil {
		return fmt.Errorf("inventory.Fill(%s): %w", campaignID, err)
	}
	return nil
}

// permutation returns 0 … n-1 in a secret random order.
func permutation(n int) []int {
	var seed [32]byte
	_, _ = rand.Read(seed[:]) // never fails
	source := mathrand.NewChaCha8(seed)
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	mathrand.New(source).Shuffle(n, func(i, j int) { order[i], order[j] = order[j], order[i] }) //nolint:gosec // ChaCha8 with a secret seed is a cryptographic generator
	return order
}
