package cli

import (
	"context"
	"fmt"
	"iter"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"triprize.example/client"
)

func paymentsCommand() *cobra.Command {
	parent := group("payments", "List waiting card payments, check one with the provider, or resolve one")
	list := &cobra.Command{Use: "list", Short: "List card payments that wait for the provider, a key or an operator", Args: cobra.NoArgs}
	waiter := list.Flags().String("waiting-for", "", "only payments that wait for: operator, key or provider")
	lister(list, paymentTable, func(ctx context.Context, api *client.Client, _ []string) (iter.Seq2[client.CardPayment, error], error) {
		return api.Payments(ctx, client.ListPaymentsParams{WaitingFor: client.WaitingFor(*waiter)}), nil
	})
	retry := action{use: "retry PURCHASE", short: "Check the payment of a purchase with the provider now", what: "a purchase",
		do: func(ctx context.Context, api *client.Client, id uuid.UUID, _ string) (any, error) {
			return api.RetryPayment(ctx, id)
		}}
	var outcome, reference *string
	var version *int64
	resolve := action{
		use:   "resolve PURCHASE",
		short: "Resolve a payment that waits for an operator",
		long: `Resolve the payment of a purchase that waits for an operator, with the outcome that you
found at the provider. unpaid: nothing was paid, or the money was already returned; the
positions are released and the job fails. paid: the full amount was paid, and the provider
says so now; the positions are sold, or the money is refunded if the purchase cannot have
them. paid-out-of-band: the full amount came in another way, which --reference names; the
provider's payment is cancelled. The timeline of the purchase records the operator and the
reason. A payment that can still end without an operator, or that has changed since it was
listed, is rejected.`,
		what: "a purchase", reason: "what you found at the provider, for the records",
		do: func(ctx context.Context, api *client.Client, id uuid.UUID, reason string) (any, error) {
			return api.ResolvePayment(ctx, id, client.PaymentResolutionRequest{Outcome: client.PaymentOutcome(*outcome), Version: *version, Reference: *reference, Reason: reason}, client.WithReason(reason))
		},
	}.command()
	outcome = required(resolve, "outcome", "unpaid, paid or paid-out-of-band")
	version = requiredNumber(resolve, "version", "its version in the list")
	reference = resolve.Flags().String("reference", "", "where money that was paid out of band can be found")
	parent.AddCommand(list, retry.command(), resolve)
	return parent
}

var paymentTable = table[client.CardPayment]{"payments", "PURCHASE\tVERSION\tINTENT\tAMOUNT\tPHASE\tSTATUS\tWAITING FOR\tCREATED\tREASON", func(p client.CardPayment) string {
	return cells(p.PurchaseID, p.Version, p.Reference, amountOf(p.Amount, p.Currency), p.Phase, p.Status, p.WaitingFor, p.CreatedAt, p.Reason)
}}

func refundsCommand() *cobra.Command {
	parent := group("refunds", "List card refunds that wait for an operator, retry one, or mark one as made by hand")
	list := &cobra.Command{Use: "list", Short: "List card refunds that wait for an operator, with the reason", Args: cobra.NoArgs}
	lister(list, refundTable, func(ctx context.Context, api *client.Client, _ []string) (iter.Seq2[client.Refund, error], error) {
		return api.WaitingRefunds(ctx, client.ListWaitingRefundsParams{WaitingFor: client.RefundsWaitingForOperator}), nil
	})
	const how = "how the money was returned, for the records"
	retry := action{
		use: "retry REFUND", short: "Retry a refund that the provider rejected, or check a stuck one now", what: "a refund",
		do: func(ctx context.Context, api *client.Client, id uuid.UUID, _ string) (any, error) {
			return api.RetryRefund(ctx, id)
		},
	}
	var amount, total *int64
	resolve := action{
		use: "resolve REFUND", short: "Mark a card refund that waits for an operator as made by hand",
		long: `Mark a card refund that waits for an operator as made by hand: the money was returned in
another way. The refund is final and is not checked again. The reason is visible to the
buyer. A refund that can still end without an operator, or over another amount than
--amount by now, is rejected.`,
		what: "a refund", reason: how,
		do: func(ctx context.Context, api *client.Client, id uuid.UUID, reason string) (any, error) {
			return api.ResolveRefund(ctx, id, client.RefundResolutionRequest{Amount: *amount, Reason: reason}, client.WithReason(reason))
		},
	}.command()
	amount = requiredNumber(resolve, "amount", "what was returned, in minor units")
	campaign := action{
		use: "resolve-campaign CAMPAIGN", short: "Mark up to 1,000 card refunds of a campaign that wait for an operator as made by hand",
		long: `Mark the card refunds of a campaign that wait for an operator as made by hand, as resolve
does for one: the first 1,000 that are listed. They must be over --amount together.`,
		what: "a campaign", reason: how,
		do: func(ctx context.Context, api *client.Client, id uuid.UUID, reason string) (any, error) {
			if _, err := api.GetCampaign(ctx, id); err != nil {
				return nil, err
			}
			made, sum := client.RefundsResolutionRequest{Reason: reason}, int64(0)
			for r, err := range api.WaitingRefunds(ctx, client.ListWaitingRefundsParams{WaitingFor: client.RefundsWaitingForOperator}) {
				if err != nil {
					return nil, err
				}
				if r.CampaignID == id && len(made.Refunds) < 1000 {
					made.Refunds, sum = append(made.Refunds, client.ReturnedByHand{ID: r.ID, Amount: r.Amount}), sum+r.Amount
				}
			}
			if sum != *total || len(made.Refunds) == 0 {
				return nil, fmt.Errorf("%d refunds of the campaign wait for an operator, over %d together, and not %d: nothing was done", len(made.Refunds), sum, *total)
			}
			return api.ResolveRefunds(ctx, id, made, client.WithReason(reason))
		},
	}.command()
	total = requiredNumber(campaign, "amount", "what was returned of all together, in minor units")
	parent.AddCommand(list, retry.command(), resolve, campaign)
	return parent
}

var refundTable = table[client.Refund]{"refunds", "REFUND\tPURCHASE\tREFERENCE\tAMOUNT\tSTATE\tCREATED\tREASON", func(r client.Refund) string {
	return cells(r.ID, r.PurchaseID, r.Reference, amountOf(r.Amount, r.Currency), r.State, r.CreatedAt, r.Failure)
}}
