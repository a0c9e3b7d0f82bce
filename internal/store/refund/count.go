package refund

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// Counts is how many refunds a cancelled campaign has made, by method and by what is to
// be done about them. Those of purchases that were cancelled before it do not count.
type Counts struct {
	Wallet    int
	Card      int
	External  int
	UnderWay  int // at the provider: open and pending ones that are not stuck
	ForPeople int // waiting for an operator, or for an action of the buyer: no job waits for them
}

// Total returns how many there are.
func (c Counts) Total() int { return c.Wallet + c.Card + c.External }

// forOperator is Refund.ForOperator in SQL, and the condition of the index
// refunds_for_operator.
const forOperator = `method = 'card' AND number IS NOT NULL AND (state IN ('failed', 'canceled') OR stuck AND state IN ('open', 'pending', 'requires_action'))`

// CountForOperator counts the card refunds that wait for an operator, those of all
// campaigns.
func CountForOperator(ctx context.Context, db postgres.DB) (n int, err error) {
	if err := db.QueryRow(ctx, `SELECT count(*) FROM refunds WHERE `+forOperator).Scan(&n); err != nil {
		return 0, fmt.Errorf("refund.CountForOperator: %w", err)
	}
	return n, nil
}

// CountCancelled counts the refunds of a cancelled campaign.
func CountCancelled(ctx context.Context, db postgres.DB, campaignID uuid.UUID) (Counts, error) {
	c, err := postgres.CollectOne(ctx, db, pgx.RowToStructByPos[Counts], `
		SELECT count(*) FILTER (WHERE method = 'wallet'), count(*) FILTER (WHERE method = 'card'), count(*) FILTER (WHERE method = 'external'),
		       count(*) FILTER (WHERE state IN ('open', 'pending') AND NOT stuck), count(*) FILTER (WHERE `+forOperator+` OR method = 'card' AND state = 'requires_action')
		FROM refunds WHERE campaign_id = $1 AND reason = 'campaign-cancelled'`, campaignID)
	return c, fault.At(err, "refund.CountCancelled(%s)", campaignID)
}
