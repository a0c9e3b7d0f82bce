package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"triprize/internal/domain/money"
	"triprize/internal/platform/config"
	"triprize/internal/service/reconciliation"
	"triprize/internal/store/balance"
	"triprize/internal/store/job"
)

func reconciliationCommand() *cobra.Command {
	parent := group("reconciliation", "List what the provider's books and ours disagree about, explain it, or report the provider's balance by day")
	explain := action{
		use: "explain DIFFERENCE", short: "Say why a difference is none",
		long: `Say why an open difference is none. It counts in no alert then, and stays on record with your
name and reason. No payment and no refund is changed.`,
		what: "a difference", kind: job.KindDifferenceExplain, by: true, reason: "why it is no difference, for the records",
		do: func(ctx context.Context, t target) (job.Accepted, error) {
			service := reconciliation.NewService(t.db, func(d balance.Difference) any { return differenceLineOf(d) })
			return service.Explain(ctx, t.request, t.id, t.by, t.reason)
		},
	}
	parent.AddCommand(listDifferencesCommand(), explain.command(), reportBalanceCommand())
	return parent
}

func listDifferencesCommand() *cobra.Command {
	c := &cobra.Command{Use: "list", Short: "List differences, those that are open if nothing else is asked for", Args: cobra.NoArgs}
	state := c.Flags().String("state", string(balance.Open), "only those that are: open, explained, closed, or all")
	c.PreRunE = func(*cobra.Command, []string) error {
		switch balance.State(*state) {
		case balance.Open, balance.Explained, balance.Closed:
			return nil
		case "all":
			*state = ""
			return nil
		}
		return errors.New("--state must be open, explained, closed or all")
	}
	return lister(c, differenceTable, func(ctx context.Context, db *pgxpool.Pool, _ []string, most int) ([]differenceLine, error) {
		list, err := balance.List(ctx, db, balance.State(*state), uuid.Nil, most)
		return lines(list, differenceLineOf), err
	})
}

// differenceLine is a difference as this tool prints it.
type differenceLine struct {
	ID            uuid.UUID     `json:"id"`
	Kind          balance.Kind  `json:"kind"`
	State         balance.State `json:"state"`
	Reference     string        `json:"reference"`
	Transaction   *string       `json:"transaction"`
	PurchaseID    *uuid.UUID    `json:"purchase_id"`
	HereAmount    *int64        `json:"here_amount"` // minor units
	HereCurrency  *string       `json:"here_currency"`
	ThereAmount   *int64        `json:"there_amount"`
	ThereCurrency *string       `json:"there_currency"`
	Detail        string        `json:"detail"`
	ExplainedBy   *string       `json:"explained_by,omitempty"`
	Explanation   *string       `json:"explanation,omitempty"`
	FoundAt       time.Time     `json:"found_at"`
	ClosedAt      *time.Time    `json:"closed_at,omitempty"`
}

func differenceLineOf(d balance.Difference) differenceLine {
	return differenceLine{ID: d.ID, Kind: d.Kind, State: d.State(), Reference: d.ObjectID, Transaction: d.TransactionID, PurchaseID: d.PurchaseID,
		HereAmount: d.HereAmount, HereCurrency: d.HereCurrency, ThereAmount: d.ThereAmount, ThereCurrency: d.ThereCurrency, Detail: d.Detail,
		ExplainedBy: d.ExplainedBy, Explanation: d.Explanation, FoundAt: d.FoundAt, ClosedAt: d.ClosedAt}
}

var differenceTable = table[differenceLine]{"differences", "DIFFERENCE\tKIND\tSTATE\tREFERENCE\tPURCHASE\tHERE\tTHERE\tFOUND\tDETAIL", func(l differenceLine) string {
	purchase := "-"
	if l.PurchaseID != nil {
		purchase = l.PurchaseID.String()
	}
	return cells(l.ID, l.Kind, l.State, &l.Reference, purchase, side(l.HereAmount, l.HereCurrency), side(l.ThereAmount, l.ThereCurrency), l.FoundAt, &l.Detail)
}}

func side(amount *int64, currency *string) string {
	if amount == nil || currency == nil {
		return "-"
	}
	return money.Currency(*currency).Format(money.Amount(*amount))
}

func reportBalanceCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "report",
		Short: "Report the provider's balance transactions by day, category and currency",
		Long: `Report what has moved the provider's balance from --from until before --to, by day (UTC),
reporting category, currency of the payments and currency of the balance: how many, the
sum of the payments, and amount, fee and net in the balance, in minor units. A day is
listed 48 hours after its end. Payments of others on the account are counted only.`,
		Args: cobra.NoArgs,
	}
	file := configFlag(c)
	from := c.Flags().String("from", "", "first day: 2026-11-01")
	to := c.Flags().String("to", "", "the day after the last one")
	asJSON := c.Flags().Bool("json", false, "print JSON")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		begin, end, err := spanOf(*from, *to)
		if err != nil {
			return err
		}
		return withDatabase(cmd.Context(), *file, func(db *pgxpool.Pool, _ config.Settings) error {
			days, sums, err := balance.Report(cmd.Context(), db, begin, end)
			if err != nil {
				return err
			}
			return printBalance(cmd.OutOrStdout(), days, sums, *asJSON)
		})
	}
	return c
}

// balanceDay is a day of the report in JSON.
type balanceDay struct {
	Day     string        `json:"day"`
	Done    bool          `json:"done"`
	Foreign int64         `json:"foreign"`
	Sums    []balance.Sum `json:"sums"`
}

func printBalance(out io.Writer, days []balance.Reconciled, sums []balance.Sum, asJSON bool) error {
	report := make([]balanceDay, len(days))
	for i, d := range days {
		report[i] = balanceDay{Day: d.Day.UTC().Format(time.DateOnly), Done: d.DoneAt != nil, Foreign: d.Foreign, Sums: []balance.Sum{}}
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
