package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"triprize/internal/domain/money"
	"triprize/internal/platform/config"
	"triprize/internal/service/refunds"
	"triprize/internal/store/job"
	"triprize/internal/store/refund"
)

func refundsCommand() *cobra.Command {
	parent := group("refunds", "List the card refunds that wait for an operator, try one again, or say that one was made by hand")
	parent.AddCommand(listRefundsCommand(), retryRefundCommand(), resolveRefundCommand())
	return parent
}

func listRefundsCommand() *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List the card refunds that wait for an operator, and why", Args: cobra.NoArgs}
	flags := listingFlags(c, "refunds")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := flags.check(); err != nil {
			return err
		}
		return withDatabase(cmd.Context(), *flags.file, func(db *pgxpool.Pool) error {
			list, err := refund.WaitingForOperator(cmd.Context(), db, uuid.Nil, flags.more())
			if err != nil {
				return err
			}
			return printRefundList(cmd.OutOrStdout(), cut(list, *flags.limit, cmd.ErrOrStderr()), *flags.asJSON)
		})
	}
	return c
}

func retryRefundCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "retry REFUND",
		Short: "Have a refund made again that the provider has refused, or one that is stuck looked at now",
		Args:  cobra.ExactArgs(1),
	}
	file := configFlag(c)
	by := c.Flags().String("by", "", "who you are, for the records")
	_ = c.MarkFlagRequired("by")
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkText("--by", *by, maxName); err != nil {
			return err
		}
		return command(cmd, *file, args[0], "refund", job.KindRefundRetry, func(ctx context.Context, db *pgxpool.Pool, _ config.Settings, r job.Request, id uuid.UUID) (job.Accepted, error) {
			return refundsOn(db).Retry(ctx, r, id, operatorBy(*by))
		})
	}
	return c
}

func resolveRefundCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "resolve REFUND",
		Short: "Say that a card refund that waits for an operator was made by hand",
		Long: `Say that the money of a card refund that waits for an operator was given back in another
way, and how. The refund is resolved, for ever: nobody looks at it again. The buyer can
read the reason. One that can still end by itself is refused.`,
		Args: cobra.ExactArgs(1),
	}
	file := configFlag(c)
	reason := c.Flags().String("reason", "", "how the money was given back, for the records")
	by := c.Flags().String("by", "", "who you are, for the records")
	for _, name := range []string{"reason", "by"} {
		_ = c.MarkFlagRequired(name)
	}
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkRecord(*reason, *by); err != nil {
			return err
		}
		return command(cmd, *file, args[0], "refund", job.KindRefundResolve, func(ctx context.Context, db *pgxpool.Pool, _ config.Settings, r job.Request, id uuid.UUID) (job.Accepted, error) {
			return refundsOn(db).Resolve(ctx, r, id, operatorBy(*by), *reason, false)
		})
	}
	return c
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

func printRefundList(out io.Writer, list []refund.Refund, asJSON bool) error {
	lines := make([]refundLine, len(list))
	for i, r := range list {
		lines[i] = refundLineOf(r)
	}
	if asJSON {
		return json.NewEncoder(out).Encode(map[string]any{"refunds": lines})
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "REFUND\tPURCHASE\tREFERENCE\tAMOUNT\tSTATE\tCREATED\tREASON")
	for _, l := range lines {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", l.ID, l.PurchaseID, cell(l.Reference), l.Currency.Format(l.Amount), l.State,
			l.CreatedAt.Format(time.DateTime), cell(l.Failure))
	}
	return table.Flush()
}
