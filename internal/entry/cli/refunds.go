package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"triprize/internal/domain/access"
	"triprize/internal/domain/money"
	"triprize/internal/service/refunds"
	"triprize/internal/store/job"
	"triprize/internal/store/refund"
)

func refundsCommand() *cobra.Command {
	parent := group("refunds", "List the card refunds that wait for an operator, try one again, or say that one was made by hand")
	list := &cobra.Command{Use: "list", Short: "List the card refunds that wait for an operator, and why", Args: cobra.NoArgs}
	lister(list, refundTable, func(ctx context.Context, db *pgxpool.Pool, _ []string, most int) ([]refundLine, error) {
		list, err := refund.WaitingForOperator(ctx, db, uuid.Nil, most)
		return lines(list, refundLineOf), err
	})
	retry := action{
		use: "retry REFUND", short: "Have a refund made again that the provider has refused, or one that is stuck looked at now",
		what: "a refund", kind: job.KindRefundRetry, by: true,
		do: func(ctx context.Context, t target) (job.Accepted, error) {
			return refundsOn(t.db).Retry(ctx, t.request, t.id, t.by)
		},
	}
	resolve := action{
		use: "resolve REFUND", short: "Say that a card refund that waits for an operator was made by hand",
		long: `Say that the money of a card refund that waits for an operator was given back in another
way, and how. The refund is resolved, for ever: nobody looks at it again. The buyer can
read the reason. One that can still end by itself is refused.`,
		what: "a refund", kind: job.KindRefundResolve, by: true, reason: "how the money was given back, for the records",
		do: func(ctx context.Context, t target) (job.Accepted, error) {
			return refundsOn(t.db).Resolve(ctx, t.request, access.Everything(), t.id, t.by, t.reason)
		},
	}
	campaign := action{
		use: "resolve-campaign CAMPAIGN", short: fmt.Sprintf("Say it of the card refunds of a campaign that wait for an operator, of %d at most", refunds.MostResolved),
		long: `Say that the money of the card refunds of a campaign that wait for an operator was given
back in another way, and how: as resolve does it for one. Repeat it while it says that there
are more.`,
		what: "a campaign", kind: job.KindRefundsResolve, by: true, reason: "how the money was given back, for the records",
		do: func(ctx context.Context, t target) (job.Accepted, error) {
			t.request.CampaignID = t.id
			return refundsOn(t.db).ResolveCampaign(ctx, t.request, access.Everything(), t.by, t.reason)
		},
	}
	parent.AddCommand(list, retry.command(), resolve.command(), campaign.command())
	return parent
}

func refundsOn(db *pgxpool.Pool) *refunds.Service {
	return refunds.NewService(db, func(r refund.Refund) any { return refundLineOf(r) })
}

// refundLine is a card refund as this tool prints it.
type refundLine struct {
	ID         uuid.UUID         `json:"id"`
	PurchaseID uuid.UUID         `json:"purchase_id"`
	CampaignID uuid.UUID         `json:"campaign_id"`
	Amount     money.Amount      `json:"amount"` // minor units
	Currency   money.Currency    `json:"currency"`
	State      refund.State      `json:"state"`
	Reference  *string           `json:"reference"`
	WaitingFor string            `json:"waiting_for,omitempty"`
	Failure    *string           `json:"failure,omitempty"` // why it waits
	Resolution *refundResolution `json:"resolution,omitempty"`
	CreatedAt  time.Time         `json:"created_at"`
}

// refundResolution is who says that a refund was made by hand, and how.
type refundResolution struct {
	By     string `json:"by"`
	Reason string `json:"reason"`
}

func refundLineOf(r refund.Refund) refundLine {
	l := refundLine{ID: r.ID, PurchaseID: r.PurchaseID, CampaignID: r.CampaignID, Amount: r.Amount, Currency: money.Currency(r.Currency), State: r.State,
		Reference: r.ProviderID, Failure: r.Failure, CreatedAt: r.CreatedAt}
	if r.ForOperator() {
		l.WaitingFor = "operator"
	}
	if r.ResolvedBy != nil && r.ResolveReason != nil { // the table allows both or neither
		l.Resolution = &refundResolution{By: *r.ResolvedBy, Reason: *r.ResolveReason}
	}
	return l
}

var refundTable = table[refundLine]{"refunds", "REFUND\tPURCHASE\tREFERENCE\tAMOUNT\tSTATE\tCREATED\tREASON", func(l refundLine) string {
	return cells(l.ID, l.PurchaseID, l.Reference, l.Currency.Format(l.Amount), l.State, l.CreatedAt, l.Failure)
}}
