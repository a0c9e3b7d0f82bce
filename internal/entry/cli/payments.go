package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/config"
	"triprize/internal/service/payments"
	"triprize/internal/store/job"
	"triprize/internal/store/payment"
)

// cliClient is the client of what this tool does, in the records.
const cliClient = "triprize"

// maxReason is how long a reason for the records may be, in characters.
const maxReason = 500

func paymentsCommand() *cobra.Command {
	parent := group("payments", "List the payments by card that wait, look at one again, or end one by hand")
	parent.AddCommand(listPaymentsCommand(), retryPaymentCommand(), settlePaymentCommand())
	return parent
}

func listPaymentsCommand() *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List the payments that wait, and what for", Args: cobra.NoArgs}
	file := configFlag(c)
	waiter := c.Flags().String("waiting-for", "", "only those that wait for: operator, key or provider")
	limit := c.Flags().Int("limit", 100, "most payments to list")
	asJSON := c.Flags().Bool("json", false, "print JSON")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		switch payment.Waiter(*waiter) {
		case "", payment.Operator, payment.Key, payment.Provider:
		default:
			return fmt.Errorf("--waiting-for must be operator, key or provider")
		}
		if *limit < 1 || *limit > 10_000 {
			return errors.New("--limit must be 1 to 10000")
		}
		return withDatabase(cmd.Context(), *file, func(db *pgxpool.Pool) error {
			list, err := payment.Waiting(cmd.Context(), db, payment.Waiter(*waiter), uuid.Nil, *limit)
			if err != nil {
				return err
			}
			return printPaymentList(cmd.OutOrStdout(), list, *asJSON)
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
		return commandPayment(cmd, *file, args[0], job.KindPaymentRetry, func(ctx context.Context, s *payments.Service, r job.Request, id uuid.UUID) (job.Accepted, error) {
			return s.Retry(ctx, r, id)
		})
	}
	return c
}

func settlePaymentCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "settle PURCHASE",
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
		if err := errors.Join(checkText("--reason", *reason, maxReason), checkText("--by", *by, 100)); err != nil {
			return err
		}
		return commandPayment(cmd, *file, args[0], job.KindPaymentSettle, func(ctx context.Context, s *payments.Service, r job.Request, id uuid.UUID) (job.Accepted, error) {
			return s.Settle(ctx, r, id, found, "operator:"+cliClient+"/"+*by, *reason)
		})
	}
	return c
}

// checkText refuses what the records cannot have.
func checkText(flag, text string, most int) error {
	switch {
	case strings.TrimSpace(text) == "":
		return fmt.Errorf("%s must not be empty", flag)
	case len([]rune(text)) > most:
		return fmt.Errorf("%s may have %d characters at most", flag, most)
	case strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r >= 0x7f && r <= 0x9f || r == '\uFFFD' }):
		return fmt.Errorf("%s must be text, without control characters", flag)
	}
	return nil
}

// commandPayment runs a command on the payment of a purchase, and prints the payment.
func commandPayment(cmd *cobra.Command, file, purchase string, kind job.Kind,
	do func(ctx context.Context, s *payments.Service, r job.Request, id uuid.UUID) (job.Accepted, error),
) error {
	id, err := uuid.Parse(purchase)
	if err != nil {
		return fmt.Errorf("%q is not the id of a purchase", purchase)
	}
	settings, err := config.Load(file)
	if err != nil {
		return err
	}
	return withDatabase(cmd.Context(), file, func(db *pgxpool.Pool) error {
		s := payments.NewService(db, settings.Payments.Stripe.Enabled(), nil, func(p payment.Payment) any { return lineOf(p) })
		request := job.Request{ID: uuidv7.New(), Client: cliClient, Key: uuid.NewString(), Kind: kind, Keep: settings.Retention.Jobs}
		done, err := do(cmd.Context(), s, request, id)
		if err != nil {
			return err
		}
		if done.Job.Problem != nil {
			return done.Job.Problem.Err()
		}
		say(cmd.OutOrStdout(), "%s", done.Job.Result)
		return nil
	})
}

// paymentLine is a payment as this tool prints it.
type paymentLine struct {
	PurchaseID uuid.UUID      `json:"purchase_id"`
	CampaignID uuid.UUID      `json:"campaign_id"`
	Amount     int64          `json:"amount"` // minor units
	Currency   string         `json:"currency"`
	Phase      payment.Phase  `json:"phase"`
	IntentID   *string        `json:"reference"`
	Status     *string        `json:"status"`
	WaitingFor payment.Waiter `json:"waiting_for,omitempty"`
	Reason     *string        `json:"reason,omitempty"`
	NextLookAt *time.Time     `json:"next_look_at"`
	CreatedAt  time.Time      `json:"created_at"`
}

func lineOf(p payment.Payment) paymentLine {
	return paymentLine{PurchaseID: p.PurchaseID, CampaignID: p.CampaignID, Amount: int64(p.Amount), Currency: p.Currency, Phase: p.Phase, IntentID: p.IntentID,
		Status: p.IntentStatus, WaitingFor: p.WaitsFor(), Reason: p.WaitingFor, NextLookAt: p.DueAt, CreatedAt: p.CreatedAt}
}

func printPaymentList(out io.Writer, list []payment.Payment, asJSON bool) error {
	lines := make([]paymentLine, len(list))
	for i, p := range list {
		lines[i] = lineOf(p)
	}
	if asJSON {
		return json.NewEncoder(out).Encode(map[string]any{"payments": lines})
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "PURCHASE\tINTENT\tAMOUNT\tPHASE\tSTATUS\tWAITING FOR\tSINCE")
	for _, l := range lines {
		fmt.Fprintf(table, "%s\t%s\t%d %s\t%s\t%s\t%s\t%s\n", l.PurchaseID, textOr(l.IntentID), l.Amount, l.Currency, l.Phase, textOr(l.Status), l.WaitingFor,
			l.CreatedAt.Format(time.DateTime))
	}
	return table.Flush()
}

func textOr(s *string) string {
	if s == nil {
		return "-"
	}
	return *s
}
