package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"triprize/internal/entry/upkeep"
	"triprize/internal/payment/reconciliation"
	"triprize/internal/person"
	"triprize/internal/platform/audit"
	"triprize/internal/platform/config"
	"triprize/internal/platform/keyring"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/stripe"
)

// auditTimeout replaces the timeouts of a statement and of an idle transaction: the
// audit reads all data, as of one moment.
const auditTimeout = 6 * time.Hour

func auditCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "audit",
		Short: "Check all invariants and list violations; status 1 if there are any",
		Long: `Check all invariants in one snapshot and list violations: owners, counters, limits,
holds, purchases and their payments, the ledger and every wallet, every draw. The
command only reads and blocks no other transaction. On a large database it takes long
and delays vacuum: run it on a replica there. Status 1 if there are violations. The
sweep audit checks the same on the running system, a part at a time; --stored lists
the violations that it found. With draw.secret_key the command also finds rows of
users who were erased, as they come from a backup.`,
		Args: cobra.NoArgs,
	}
	limit := c.Flags().Int("limit", 20, "maximum number of violations to list per invariant")
	stored := c.Flags().Bool("stored", false, "only list violations that the sweep audit has found")
	asJSON := c.Flags().Bool("json", false, "print JSON")
	c.PreRunE = func(*cobra.Command, []string) error { return checkLimit(*limit) }
	onDatabase(c, auditTimeout, func(cmd *cobra.Command, _ []string, db *pgxpool.Pool, settings config.Settings) error {
		if *stored {
			return reportStored(cmd, db, *asJSON)
		}
		hasher := keyring.NewHasher(settings.Draw.SecretKey, settings.Draw.PreviousSecretKeys)
		found, err := audit.Check(cmd.Context(), db, slices.Concat(upkeep.Invariants, person.Invariants(hasher)), *limit)
		if err != nil {
			return err
		}
		return reportAudit(cmd.OutOrStdout(), found, len(hasher) > 0, *asJSON)
	})
	c.AddCommand(auditPaymentsCommand())
	return c
}

// report prints what a check has found, as JSON or by write, and returns an error if it has found something.
func report(out io.Writer, asJSON bool, document any, write func(), found int, one, many string) error {
	if !asJSON {
		write()
	} else if err := json.NewEncoder(out).Encode(document); err != nil {
		return err
	}
	if found > 0 {
		return &statusError{fmt.Errorf("%d %s", found, cond(found == 1, one, many)), 1}
	}
	return nil
}

func reportAudit(out io.Writer, found []audit.Violation, withErased, asJSON bool) error {
	document := map[string]any{"ok": len(found) == 0, "invariants": len(upkeep.Invariants), "erased_users": withErased, "violations": append([]audit.Violation{}, found...)}
	return report(out, asJSON, document, func() {
		for _, v := range found {
			say(out, "broken: %s\n        %s", v.Invariant, v.Subject)
		}
		if len(found) == 0 {
			say(out, "%d invariants hold; secrets were not decrypted: draw_key_wrong in /readyz reports a process whose keys do not decrypt them", len(upkeep.Invariants))
		}
		if !withErased {
			say(out, "not checked: that nothing of an erased user has come back; that needs draw.secret_key")
		}
	}, len(found), "violation", "violations")
}

func reportStored(cmd *cobra.Command, db postgres.DB, asJSON bool) error {
	found, err := audit.ListStored(cmd.Context(), db)
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	return report(out, asJSON, map[string]any{"ok": len(found) == 0, "stored": found}, func() {
		for _, v := range found {
			say(out, "broken: %s of %s (%s), found %s, last seen %s\n        %s", v.Check, v.ID, v.Walk, v.FoundAt.Format(time.RFC3339), v.SeenAt.Format(time.RFC3339),
				strings.Join(v.Subjects, "\n        "))
		}
		if len(found) == 0 {
			say(out, "no stored violations")
		}
	}, len(found), "violation", "violations")
}

func auditPaymentsCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "payments",
		Short: "Compare our payments and refunds with the provider's; status 1 on discrepancies, 2 if they cannot be compared",
		Long: `Compare our payments and refunds with the provider's balance transactions from --from up
to, but not including, --to (default: yesterday, UTC). The rules are those of the sweep
reconciliation, which runs two days later: captures, refunds and disputes must match on both
sides, to the minor unit. Payments and refunds in progress are listed separately. The command
changes nothing, but needs the primary, for a temporary table. Status 1 on discrepancies, 2 if
the comparison failed: the provider or Postgres is unavailable, the provider rejects the key,
or a setting is missing.`,
		Args: cobra.NoArgs,
	}
	from := c.Flags().String("from", "", "start, inclusive: 2026-11-01 (UTC) or 2026-11-01T09:00:00+09:00; default without --to: yesterday (UTC)")
	to := c.Flags().String("to", "", "end, exclusive")
	asJSON := c.Flags().Bool("json", false, "print JSON")
	return checks(onDatabase(c, auditTimeout, func(cmd *cobra.Command, _ []string, db *pgxpool.Pool, settings config.Settings) error {
		span, err := compareBooks(cmd.Context(), db, settings, *from, *to)
		if err != nil {
			return err
		}
		return reportPayments(cmd.OutOrStdout(), span, *asJSON)
	}))
}

func compareBooks(ctx context.Context, db *pgxpool.Pool, settings config.Settings, from, to string) (span reconciliation.Span, err error) {
	begin, end := yesterday(time.Now())
	if from != "" || to != "" {
		if begin, end, err = spanOf(from, to); err != nil {
			return span, err
		}
	}
	if !settings.Payments.Stripe.Enabled() {
		return span, errors.New("payments.stripe.key is not set: there is no provider to compare with")
	}
	provider := stripe.New(settings.Payments.Stripe, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	defer provider.Close()
	session, err := db.Acquire(ctx)
	if err != nil {
		return span, err
	}
	defer session.Release()
	return reconciliation.CompareSpan(ctx, session, provider, begin, end)
}

// yesterday is the last day (UTC) that is over.
func yesterday(now time.Time) (begin, end time.Time) {
	end = now.UTC().Truncate(24 * time.Hour)
	return end.AddDate(0, 0, -1), end
}

// spanOf reads --from and --to.
func spanOf(from, to string) (begin, end time.Time, err error) {
	if begin, err = momentOf("--from", from); err != nil {
		return begin, end, err
	}
	if end, err = momentOf("--to", to); err != nil {
		return begin, end, err
	}
	switch {
	case !begin.Before(end):
		err = fmt.Errorf("--to must be after --from")
	case end.Sub(begin) > reconciliation.MaxSpan:
		err = fmt.Errorf("the range may have %d days at most; split longer ranges", int(reconciliation.MaxSpan.Hours()/24))
	}
	return begin, end, err
}

func momentOf(flag, text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, fmt.Errorf("%s is required", flag)
	}
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Time{}, fmt.Errorf("%s %q is neither a date (2026-11-01) nor a time (2026-11-01T09:00:00Z)", flag, text)
}

func reportPayments(out io.Writer, r reconciliation.Span, asJSON bool) error {
	document := struct {
		OK bool `json:"ok"`
		reconciliation.Span
	}{len(r.Discrepancies) == 0, r}
	return report(out, asJSON, document, func() { printPayments(out, r) }, len(r.Discrepancies), "discrepancy", "discrepancies")
}

func printPayments(out io.Writer, r reconciliation.Span) {
	side := func(amount *int64, currency *string) string {
		if amount == nil || currency == nil {
			return "nothing"
		}
		return fmt.Sprintf("%d %s", *amount, *currency)
	}
	for _, d := range slices.Concat(r.Discrepancies, r.UnderWay) {
		purchase, name := "–", string(d.Kind)
		if d.PurchaseID != nil {
			purchase = d.PurchaseID.String()
		}
		if d.UnderWay {
			name = "under way"
		}
		say(out, "%s: purchase %s, %s: %s; here %s, there %s", name, purchase, cmp.Or(d.ObjectID, "–"), d.Detail,
			side(d.HereAmount, d.HereCurrency), side(d.ThereAmount, d.ThereCurrency))
	}
	for _, t := range r.Totals {
		say(out, "%s: captured %d here, %d there; refunded %d here, %d there; %d charges and %d refunds compared", t.Currency,
			t.CapturedHere, t.CapturedThere, t.RefundedHere, t.RefundedThere, t.Charges, t.Refunds)
	}
	say(out, "%d discrepancies, %d under way", len(r.Discrepancies), len(r.UnderWay))
}
