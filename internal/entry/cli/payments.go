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
