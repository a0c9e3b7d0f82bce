package cli

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"triprize/internal/domain/money"
	"triprize/internal/platform/config"
	"triprize/internal/service/payments"
	"triprize/internal/store/job"
	"triprize/internal/store/payment"
)

func paymentsCommand() *cobra.Command {
	parent := group("payments", "List the payments by card that wait, look at one again, or end one by hand")
	retry := action{use: "retry PURCHASE", short: "Have the provider asked again now about the payment of a purchase", what: "a purchase", kind: job.KindPaymentRetry,
		do: func(ctx context.Context, t target) (job.Accepted, error) {
			return paymentsOn(t.db, t.settings).Retry(ctx, t.request, t.id)
		}}
	parent.AddCommand(listPaymentsCommand(), retry.command(), resolvePaymentCommand())
	return parent
}

func listPaymentsCommand() *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List the payments that wait for the provider, a key or an operator", Args: cobra.NoArgs}
	waiter := c.Flags().String("waiting-for", "", "only those that wait for: operator, key or provider")
	c.PreRunE = func(*cobra.Command, []string) error {
		switch payment.Waiter(*waiter) {
		case "", payment.Operator, payment.Key, payment.Provider:
			return nil
		}
		return errors.New("--waiting-for must be operator, key or provider")
	}
	return lister(c, paymentTable, func(ctx context.Context, db *pgxpool.Pool, _ []string, most int) ([]paymentLine, error) {
		list, err := payment.Waiting(ctx, db, payment.Waiter(*waiter), uuid.Nil, most)
		return lines(list, paymentLineOf), err
	})
}

func resolvePaymentCommand() *cobra.Command {
	var found payment.Finding
	c := action{
		use:   "resolve PURCHASE",
		short: "End a payment that waits for an operator, with what you have found at the provider",
		long: `End the payment of a purchase that waits for an operator, with what you have found
at the provider. unpaid: nothing was paid, or what was is given back already; the
positions are free and the job fails. paid: all of it was; the positions are sold, or
the money is refunded if the purchase cannot keep them. Who and why is in the timeline
of the purchase. A payment that can still end by itself is refused.`,
		what: "a purchase", kind: job.KindPaymentResolve, by: true, reason: "what you have found, for the records",
		do: func(ctx context.Context, t target) (job.Accepted, error) {
			return paymentsOn(t.db, t.settings).Resolve(ctx, t.request, t.id, found, t.by, t.reason)
		},
	}.command()
	outcome := c.Flags().String("outcome", "", "paid or unpaid")
	_ = c.MarkFlagRequired("outcome")
	c.PreRunE = func(*cobra.Command, []string) error {
		found = payment.Finding(*outcome)
		if found != payment.FoundPaid && found != payment.FoundUnpaid {
			return errors.New("--outcome must be paid or unpaid")
		}
		return nil
	}
	return c
}

func paymentsOn(db *pgxpool.Pool, settings config.Settings) *payments.Service {
	return payments.NewService(db, settings.Payments.Stripe.Enabled(), nil, func(p payment.Payment) any { return paymentLineOf(p) })
}

// paymentLine is a payment as this tool prints it.
type paymentLine struct {
	PurchaseID uuid.UUID          `json:"purchase_id"`
	CampaignID uuid.UUID          `json:"campaign_id"`
	Amount     money.Amount       `json:"amount"` // minor units
	Currency   money.Currency     `json:"currency"`
	Phase      payment.Phase      `json:"phase"`
	IntentID   *string            `json:"reference"`
	Status     *string            `json:"status"`
	WaitingFor payment.Waiter     `json:"waiting_for,omitempty"`
	Reason     *string            `json:"reason,omitempty"`
	Resolution *paymentResolution `json:"resolution,omitempty"`
	NextLookAt *time.Time         `json:"next_look_at"`
	CreatedAt  time.Time          `json:"created_at"`
}

// paymentResolution is what an operator has said of a payment.
type paymentResolution struct {
	Outcome payment.Finding `json:"outcome"`
	By      string          `json:"by"`
	Reason  string          `json:"reason"`
}

func paymentLineOf(p payment.Payment) paymentLine {
	l := paymentLine{PurchaseID: p.PurchaseID, CampaignID: p.CampaignID, Amount: p.Amount, Currency: money.Currency(p.Currency), Phase: p.Phase, IntentID: p.IntentID,
		Status: p.IntentStatus, WaitingFor: p.WaitsFor(), Reason: p.Reason(), NextLookAt: p.DueAt, CreatedAt: p.CreatedAt}
	if p.ResolvedAs != nil && p.ResolvedBy != nil && p.ResolveReason != nil { // the table allows all or none
		l.Resolution = &paymentResolution{Outcome: *p.ResolvedAs, By: *p.ResolvedBy, Reason: *p.ResolveReason}
	}
	return l
}

var paymentTable = table[paymentLine]{"payments", "PURCHASE\tINTENT\tAMOUNT\tPHASE\tSTATUS\tWAITING FOR\tCREATED\tREASON", func(l paymentLine) string {
	return cells(l.PurchaseID, l.IntentID, l.Currency.Format(l.Amount), l.Phase, l.Status, l.WaitingFor, l.CreatedAt, l.Reason)
}}
