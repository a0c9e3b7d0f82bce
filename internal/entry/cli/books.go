package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"triprize.example/client"
	"triprize/internal/books"
	"triprize/internal/books/export"
	"triprize/internal/platform/config"
)

const (
	closingPoll = time.Second
	closingSays = time.Minute // after this time, and each such time, it says until when the month is read
)

// booksCommand lists, shows, closes and verifies months of the books.
func booksCommand() *cobra.Command {
	c := &cobra.Command{Use: "books", Short: "Close months of the books, show them, and make their journals again", Args: cobra.NoArgs}
	reader(c, writeMonths, func(ctx context.Context, api *client.Client, _ string) error { return only(api.ListMonths(ctx)) })
	show := &cobra.Command{Use: "show MONTH", Short: "Show the sums of a month, and what is open, such as 2026-11", Args: cobra.ExactArgs(1)}
	zone := show.Flags().String("zone", "", "time zone of a month that is not closed, such as Asia/Tokyo; default: that of the books")
	reader(show, writeMonth, func(ctx context.Context, api *client.Client, month string) error {
		return only(api.GetMonth(ctx, month, client.GetMonthParams{Zone: *zone}))
	})
	c.AddCommand(show, closeCommand(), withProgress(verifyMonthCommand()))
	return c
}

func closeCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "close MONTH", Short: "Close a month for ever, and print its sums", Args: cobra.ExactArgs(1),
		Long: `Close a month of the books, such as 2026-11, for ever. It must be over (with cards: for
48 hours after the last day of the provider, in UTC, that touches it) and follow the month that was
closed last. What is open prevents it and is listed; payments and
refunds that wait for somebody are carried by name with --with-open. The command waits until a
scheduler has read the journal; without it, the scheduler goes on.`,
	}
	zone := c.Flags().String("zone", "", "time zone of the books, such as Asia/Tokyo; required for the first month")
	open := c.Flags().Bool("with-open", false, "carry what is open, by name")
	reason := c.Flags().String("reason", "", "why, for the audit trail")
	return onAPI(c, func(cmd *cobra.Command, args []string, api *client.Client) error {
		m, err := api.CloseMonth(cmd.Context(), args[0], client.CloseMonth{Zone: *zone, WithOpen: *open, Reason: *reason})
		if err != nil {
			return err
		}
		for said := time.Now(); m.State == client.BookMonthStateClosing; {
			select {
			case <-cmd.Context().Done():
				return cmd.Context().Err()
			case <-time.After(closingPoll):
			}
			if m, err = api.GetMonth(cmd.Context(), args[0], client.GetMonthParams{}); err != nil {
				return err
			}
			if time.Since(said) > closingSays {
				say(cmd.ErrOrStderr(), "%s is read until %s. If that stays, the log of the scheduler says why", args[0], m.DoneUntil.UTC().Format(time.DateTime))
				said = time.Now()
			}
		}
		document, err := json.Marshal(m)
		if err != nil {
			return err
		}
		return writeMonth(cmd.OutOrStdout(), document)
	})
}

func verifyMonthCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "verify MONTH", Short: "Make the journal of a closed month again; status 1 if it differs, 2 if it cannot be made", Args: cobra.ExactArgs(1),
	}
	return checks(onDatabase(c, 0, func(cmd *cobra.Command, args []string, db *pgxpool.Pool, _ config.Settings) error {
		m, err := books.GetMonth(cmd.Context(), db, args[0])
		if err == nil && m.ClosedAt == nil {
			err = fmt.Errorf("%s is being closed", m.Name)
		}
		if err != nil {
			return err
		}
		differences, err := books.Verify(cmd.Context(), db, m, export.Hashed)
		if err != nil {
			return err
		}
		if len(differences) > 0 {
			return &statusError{fmt.Errorf("the journal of %s is not the one that was closed:\n%s", m.Name, strings.Join(differences, "\n")), 1}
		}
		say(cmd.OutOrStdout(), "%s: %d entries, SHA-256 %x, as it was closed", m.Name, *m.Entries, m.Hash)
		return nil
	}))
}

func writeMonths(out io.Writer, document []byte) error {
	var list client.MonthList
	if err := json.Unmarshal(document, &list); err != nil {
		return err
	}
	months := table[client.BookMonth]{head: "MONTH\tSTATE\tZONE\tCLOSED\tBY\tENTRIES\tSHA-256", row: func(m client.BookMonth) string {
		return cells(m.Month, m.State, m.Zone, m.ClosedAt.UTC(), m.ClosedBy, m.Entries, m.Hash)
	}}
	return months.print(out, list.Months, false)
}

// writeMonth prints the sums of a month.
func writeMonth(out io.Writer, document []byte) error {
	var m client.BookMonth
	if err := json.Unmarshal(document, &m); err != nil {
		return err
	}
	say(out, "%s (%s), %s, sales are earned at: %s", m.Month, m.Zone, m.State, m.EarnedAt)
	if m.Hash != "" {
		say(out, "%d entries, SHA-256 %s, closed %s by %s", m.Entries, m.Hash, m.ClosedAt.UTC().Format(time.DateTime), m.ClosedBy)
	}
	if m.Statement == nil {
		say(out, "its days before %s are read", m.DoneUntil.UTC().Format(time.DateTime))
		return nil
	}
	lines := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(values ...string) { fmt.Fprintln(lines, strings.Join(values, "\t")+"\t") }
	row("", "SOLD", "GIVEN BACK", "DISPUTED", "KEPT")
	for _, s := range m.Statement.Methods {
		a := func(n int64) string { return amountOf(n, s.Currency) }
		row(cell(s.Method), a(s.Sold), a(s.GivenBack), a(s.Disputed), a(s.Kept))
	}
	row("")
	row("", "OPENING", "DEBIT", "CREDIT", "CLOSING")
	for _, b := range m.Statement.Balances {
		a := func(n int64) string { return amountOf(n, b.Currency) }
		row(b.Account, a(b.Opening), a(b.Debit), a(b.Credit), a(b.Closing))
	}
	if len(m.Statement.Provider) > 0 {
		row("")
		row("PROVIDER", "OPENING", "ACTIVITY", "FEES", "PAYOUTS", "CLOSING")
	}
	for _, p := range m.Statement.Provider {
		a := func(n int64) string { return amountOf(n, p.Currency) }
		row("in the journal", a(p.Opening), a(p.Activity), a(p.Fees), a(p.Payouts), a(p.Closing))
		r := p.Reported
		row("as it reports", a(r.Opening), a(r.Activity), a(r.Fees), a(r.Payouts), a(r.Closing))
	}
	if err := lines.Flush(); err != nil {
		return err
	}
	for _, o := range m.Open {
		say(out, "open: %s %s is %s, %s", o.Kind, o.ID, o.State, cell(amountOf(o.Amount, o.Currency)))
	}
	return nil
}
