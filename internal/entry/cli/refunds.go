package cli

import (
	"context"
	"iter"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"triprize.example/client"
)

func refundsCommand() *cobra.Command {
	parent := group("refunds", "List the card refunds that wait for an operator, try one again, or say that one was made by hand")
	list := &cobra.Command{Use: "list", Short: "List the card refunds that wait for an operator, and why", Args: cobra.NoArgs}
	lister(list, refundTable, func(ctx context.Context, api *client.Client, _ []string) (iter.Seq2[client.Refund, error], error) {
		return api.WaitingRefunds(ctx, client.ListWaitingRefundsParams{WaitingFor: client.RefundsWaitingForOperator}), nil
	})
	const how = "how the money was given back, for the records"
	retry := action{
		use: "retry REFUND", short: "Have a refund made again that the provider has refused, or one that is stuck looked at now", what: "a refund",
		do: func(ctx context.Context, api *client.Client, id uuid.UUID, _ string) (any, error) {
			return api.RetryRefund(ctx, id)
		},
	}
	resolve := action{
		use: "resolve REFUND", short: "Say that a card refund that waits for an operator was made by hand",
		long: `Say that the money of a card refund that waits for an operator was given back in another
way, and how. The refund is resolved, for ever: nobody looks at it again. The buyer can
read the reason. One that can still end by itself is refused.`,
		what: "a refund", reason: how,
		do: func(ctx context.Context, api *client.Client, id uuid.UUID, reason string) (any, error) {
			return api.ResolveRefund(ctx, id, client.RefundResolutionRequest{Reason: reason})
		},
	}
	campaign := action{
		use: "resolve-campaign CAMPAIGN", short: "Say it of the card refunds of a campaign that wait for an operator, of 1,000 at most",
		long: `Say that the money of the card refunds of a campaign that wait for an operator was given
back in another way, and how: as resolve does it for one. Repeat it while it says that there
are more.`,
		what: "a campaign", reason: how,
		do: func(ctx context.Context, api *client.Client, id uuid.UUID, reason string) (any, error) {
			return api.ResolveRefunds(ctx, id, client.RefundResolutionRequest{Reason: reason})
		},
	}
	parent.AddCommand(list, retry.command(), resolve.command(), campaign.command())
	return parent
}

var refundTable = table[client.Refund]{"refunds", "REFUND\tPURCHASE\tREFERENCE\tAMOUNT\tSTATE\tCREATED\tREASON", func(r client.Refund) string {
	return cells(r.ID, r.PurchaseID, r.Reference, amountOf(r.Amount, r.Currency), r.State, r.CreatedAt, r.Failure)
}}
