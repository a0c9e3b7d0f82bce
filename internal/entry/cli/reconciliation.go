package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"triprize.example/client"
	"triprize/internal/payment/reconciliation"
	"triprize/internal/platform/config"
)

func reconciliationCommand() *cobra.Command {
	parent := group("reconciliation", "List and explain discrepancies with the provider's balance, or report the balance by day")
	list := &cobra.Command{Use: "list", Short: "List discrepancies (default: the open ones)", Args: cobra.NoArgs}
	state := list.Flags().String("state", "open", "only discrepancies that are: open, explained, closed, or all")
	lister(list, discrepancyTable, func(ctx context.Context, api *client.Client, _ []string) (iter.Seq2[client.PaymentDiscrepancy, error], error) {
		if *state == "all" {
			*state = ""
		}
		return api.PaymentDiscrepancies(ctx, client.ListPaymentDiscrepanciesParams{State: client.PaymentDiscrepancyState(*state)}), nil
	})
	var version *int64
	explain := action{
		use: "explain DISCREPANCY", short: "Explain a discrepancy",
		long: `Explain an open discrepancy. It no longer counts in alerts, and stays on record with your
name and reason. Payments and refunds do not change. One that has changed since it was
listed is rejected.`,
		what: "a discrepancy", reason: "the reason for the discrepancy, for the records",
		do: func(ctx context.Context, api *client.Client, id uuid.UUID, reason string) (any, error) {
			return api.ExplainPaymentDiscrepancy(ctx, id, client.PaymentDiscrepancyExplanationRequest{Version: *version, Reason: reason}, client.WithReason(reason))
		},
	}.command()
	version = requiredNumber(explain, "version", "its version in the list")
	parent.AddCommand(list, explain, reportBalanceCommand())
	return parent
}

var discrepancyTable = table[client.PaymentDiscrepancy]{"discrepancies", "DISCREPANCY\tVERSION\tKIND\tSTATE\tREFERENCE\tPURCHASE\tHERE\tTHERE\tFOUND\tDETAIL", func(d client.PaymentDiscrepancy) string {
	return cells(d.ID, d.Version, d.Kind, d.State, d.Reference, d.PurchaseID, amountOf(d.Here.Amount, d.Here.Currency), amountOf(d.There.Amount, d.There.Currency), d.FoundAt, d.Detail)
}}

func reportBalanceCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "report",
		Short: "Report the provider's balance transactions by day, category and currency",
		Long: `Report the provider's balance transactions from --from up to, but not including, --to, by
day (UTC), reporting category, currency of the payments and currency of the balance: their
number, the sum of the payments, and amount, fee and net in the balance, in minor units. A
day is listed 48 hours after its end. Other payments on the account are only counted.`,
		Args: cobra.NoArgs,
	}
	from := c.Flags().String("from", "", "first day (UTC), such as 2026-11-01")
	to := c.Flags().String("to", "", "the day after the last one")
	asJSON := c.Flags().Bool("json", false, "print JSON")
	return onDatabase(c, 0, func(cmd *cobra.Command, _ []string, db *pgxpool.Pool, _ config.Settings) error {
		begin, end, err := spanOf(*from, *to)
		if err != nil {
			return err
		}
		if day := 24 * time.Hour; !begin.Equal(begin.Truncate(day)) || !end.Equal(end.Truncate(day)) {
			return errors.New("the balance is known by day, in UTC: --from and --to must be days such as 2026-11-01")
		}
		days, sums, err := reconciliation.ReportDays(cmd.Context(), db, begin, end)
		if err != nil {
			return err
		}
		return printBalance(cmd.OutOrStdout(), days, sums, *asJSON)
	})
}

// balanceDay is a day of the report in JSON.
type balanceDay struct {
	Day     string               `json:"day"`
	Done    bool                 `json:"done"`
	Foreign int64                `json:"foreign"`
	Sums    []reconciliation.Sum `json:"sums"`
}

func printBalance(out io.Writer, days []reconciliation.Reconciled, sums []reconciliation.Sum, asJSON bool) error {
	report := make([]balanceDay, len(days))
	for i, d := range days {
		report[i] = balanceDay{Day: d.Day.UTC().Format(time.DateOnly), Done: d.DoneAt != nil, Foreign: d.Foreign, Sums: []reconciliation.Sum{}}
		for _, s := range sums {
			if s.Day.Equal(d.Day) {
				report[i].Sums = append(report[i].Sums, s)
			}
		}
	}
	if asJSON {
		return json.NewEncoder(out).Encode(map[string]any{"days": report})
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "DAY\tCATEGORY\tCOUNT\tPAYMENTS\tAMOUNT\tFEE\tNET")
	for _, d := range report {
		for _, s := range d.Sums {
			payments := "-"
			if s.SourceCurrency != nil {
				payments = strconv.FormatInt(s.SourceAmount, 10) + " " + *s.SourceCurrency
			}
			fmt.Fprintf(table, "%s\t%s\t%d\t%s\t%d %s\t%d\t%d\n", d.Day, s.Category, s.Count, payments, s.Amount, s.Currency, s.Fee, s.Net)
		}
		if d.Foreign > 0 {
			fmt.Fprintf(table, "%s\tof others\t%d\n", d.Day, d.Foreign)
		}
		switch {
		case !d.Done:
			fmt.Fprintf(table, "%s\tnot compared yet\n", d.Day)
		case len(d.Sums) == 0 && d.Foreign == 0:
			fmt.Fprintf(table, "%s\tnothing\t0\n", d.Day) // it is listed
		}
	}
	return table.Flush()
}
