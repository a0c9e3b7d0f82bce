package cli

import (
	"context"
	"iter"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"triprize.example/client"
)

func paymentsCommand() *cobra.Command {
	parent := group("payments", "List the payments by card that wait, look at one again, or end one by hand")
	list := &cobra.Command{Use: "list", Short: "List the payments that wait for the provider, a key or an operator", Args: cobra.NoArgs}
	waiter := list.Flags().String("waiting-for", "", "only those that wait for: operator, key or provider")
	lister(list, paymentTable, func(ctx context.Context, api *client.Client, _ []string) (iter.Seq2[client.CardPayment, error], error) {
		return api.Payments(ctx, client.ListPaymentsParams{WaitingFor: client.WaitingFor(*waiter)}), nil
	})
	retry := action{use: "retry PURCHASE", short: "Have the provider asked again now about the payment of a purchase", what: "a purchase",
		do: func(ctx context.Context, api *client.Client, id uuid.UUID, _ string) (any, error) {
			return api.RetryPayment(ctx, id)
		}}
	var outcome string
	resolve := action{
		use:   "resolve PURCHASE",
		short: "End a payment that waits for an operator, with what you have found at the provider",
		long: `End the payment of a purchase that waits for an operator, with what you have found
at the provider. unpaid: nothing was paid, or what was is given back already; the
positions are free and the job fails. paid: all of it was; the positions are sold, or
the money is refunded if the purchase cannot keep them. Who and why is in the timeline
of the purchase. A payment that can still end by itself is refused.`,
		what: "a purchase", reason: "what you have found, for the records",
		do: func(ctx context.Context, api *client.Client, id uuid.UUID, reason string) (any, error) {
			return api.ResolvePayment(ctx, id, client.PaymentResolutionRequest{Outcome: client.PaymentOutcome(outcome), Reason: reason})
		},
	}.command()
	resolve.Flags().StringVar(&outcome, "outcome", "", "paid or unpaid")
	_ = resolve.MarkFlagRequired("outcome")
	parent.AddCommand(list, retry.command(), resolve)
	return parent
}

var paymentTable = table[client.CardPayment]{"payments", "PURCHASE\tINTENT\tAMOUNT\tPHASE\tSTATUS\tWAITING FOR\tCREATED\tREASON", func(p client.CardPayment) string {
	return cells(p.PurchaseID, p.Reference, amountOf(p.Amount, p.Currency), p.Phase, p.Status, p.WaitingFor, p.CreatedAt, p.Reason)
}}

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
