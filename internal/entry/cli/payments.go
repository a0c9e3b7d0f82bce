package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
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
	parent.AddCommand(listPaymentsCommand(), retryPaymentCommand(), resolvePaymentCommand())
	return parent
}

func listPaymentsCommand() *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List the payments that wait, and what for", Args: cobra.NoArgs}
	flags := listingFlags(c, "payments")
	waiter := c.Flags().String("waiting-for", "", "only those that wait for: operator, key or provider")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		switch payment.Waiter(*waiter) {
		case "", payment.Operator, payment.Key, payment.Provider:
		default:
			return fmt.Errorf("--waiting-for must be operator, key or provider")
		}
		if err := flags.check(); err != nil {
			return err
		}
		return withDatabase(cmd.Context(), *flags.file, func(db *pgxpool.Pool) error {
			list, err := payment.Waiting(cmd.Context(), db, payment.Waiter(*waiter), uuid.Nil, flags.more())
			if err != nil {
				return err
			}
			return printPaymentList(cmd.OutOrStdout(), cut(list, *flags.limit, cmd.ErrOrStderr()), *flags.asJSON)
		})
	}
	return c
}

func retryPaymentCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "retry PURCHASE",
		Short: "Have the provider asked again now about the payment of a purchase",
		Args:  cobra.ExactArgs(1),
	}
	file := configFlag(c)
	c.RunE = func(cmd *cobra.Command, args []string) error {
		return command(cmd, *file, args[0], "purchase", job.KindPaymentRetry, func(ctx context.Context, db *pgxpool.Pool, settings config.Settings, r job.Request, id uuid.UUID) (job.Accepted, error) {
			return paymentsOn(db, settings).Retry(ctx, r, id)
		})
	}
	return c
}

func resolvePaymentCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "resolve PURCHASE",
		Short: "End a payment that waits for an operator, with what you have found at the provider",
		Long: `End the payment of a purchase that waits for an operator, with what you have found
at the provider. unpaid: nothing was paid, or what was is given back already; the
positions are free and the job fails. paid: all of it was; the positions are sold, or
the money is refunded if the purchase cannot keep them. Who and why is in the timeline
of the purchase. A payment that can still end by itself is refused.`,
		Args: cobra.ExactArgs(1),
	}
	file := configFlag(c)
	outcome := c.Flags().String("outcome", "", "paid or unpaid")
	reason := c.Flags().String("reason", "", "what you have found, for the records")
	by := c.Flags().String("by", "", "who you are, for the records")
	for _, name := range []string{"outcome", "reason", "by"} {
		_ = c.MarkFlagRequired(name)
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		found := payment.Finding(*outcome)
		if found != payment.FoundPaid && found != payment.FoundUnpaid {
			return errors.New("--outcome must be paid or unpaid")
		}
		if err := checkRecord(*reason, *by); err != nil {
			return err
		}
		return command(cmd, *file, args[0], "purchase", job.KindPaymentResolve, func(ctx context.Context, db *pgxpool.Pool, settings config.Settings, r job.Request, id uuid.UUID) (job.Accepted, error) {
			return paymentsOn(db, settings).Resolve(ctx, r, id, found, operatorBy(*by), *reason)
		})
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

func printPaymentList(out io.Writer, list []payment.Payment, asJSON bool) error {
	lines := make([]paymentLine, len(list))
	for i, p := range list {
		lines[i] = paymentLineOf(p)
	}
	if asJSON {
		return json.NewEncoder(out).Encode(map[string]any{"payments": lines})
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "PURCHASE\tINTENT\tAMOUNT\tPHASE\tSTATUS\tWAITING FOR\tCREATED\tREASON")
	for _, l := range lines {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.PurchaseID, cell(l.IntentID), l.Currency.Format(l.Amount), l.Phase, cell(l.Status), l.WaitingFor,
			l.CreatedAt.Format(time.DateTime), cell(l.Reason))
	}
	return table.Flush()
}
