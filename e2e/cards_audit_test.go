//go:build soak

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/job"
	"triprize/internal/payment/reconciliation"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/stripe"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
	"triprize/sandbox/stripesim"
)

// providerOf is the provider of a system, as our processes see it.
func providerOf(s *fleet.System) *stripe.Client {
	s.T.Helper()
	provider := stripe.New(s.Settings.Payments.Stripe, servers.Logger(s.T), prometheus.NewRegistry())
	s.T.Cleanup(provider.Close)
	return provider
}

// everyEnd leads purchases to every end that a payment can have, and returns them by name.
func everyEnd(s *fleet.System) map[string]uuid.UUID {
	s.T.Helper()
	t, id, other := s.T, s.Campaign(6), s.Campaign(3)
	at := make(map[string]uuid.UUID)
	cancel := func(bought uuid.UUID) {
		t.Helper()
		if j := cancelled(s, bought); j.State != job.Succeeded {
			t.Fatalf("a cancellation: %v", j)
		}
	}
	for name, method := range map[string]string{"paid": "pm_card_visa", "cancelled": "pm_card_visa", "by hand": "pm_card_visa", "by hand in part": "pm_card_visa", "by hand, then cancelled": "pm_card_visa",
		"in part, then cancelled": "pm_card_visa", "by hand, and failed": "pm_card_refundFail", "disputed": "pm_card_createDispute", "resolved": "pm_card_refundFail"} {
		at[name] = buyPaid(s, id, "alice", method)
	}
	at["of a cancelled campaign"] = buyPaid(s, other, "alice", "pm_card_visa")
	refused := buyByCard(s, id, "bob", "pm_card_chargeDeclined")
	noOtherCard(t, s, refused)
	s.AwaitJob(0, refused)
	at["declined"] = viewJob(s, refused).PurchaseID

	asked := buyByCard(s, id, "bob", "pm_card_authenticationRequired")
	at["cancelled before it was paid"] = awaitAction(s, asked).PurchaseID
	cancel(at["cancelled before it was paid"])
	asked = buyByCard(s, id, "bob", "pm_card_authenticationRequired")
	at["expired"] = awaitAction(s, asked).PurchaseID
	endReservation(s, asked)
	awaitPurchase(s, at["expired"], "failed")

	_, at["late"] = buyLate(s, id)
	if err := s.Sandbox.Finish(s.Sandbox.PaymentsOf(at["late"].String())[0].ID, true); err != nil {
		t.Fatal(err)
	}

	refundByHand(s, at["by hand"], 0)
	refundByHand(s, at["by hand in part"], 1)
	refundByHand(s, at["by hand, then cancelled"], 0)
	refundByHand(s, at["in part, then cancelled"], 1)
	refundByHand(s, at["by hand, and failed"], 0)
	for _, name := range []string{"cancelled", "by hand, then cancelled", "in part, then cancelled", "resolved"} {
		cancel(at[name])
	}
	if a := s.Post("/v1/campaigns/"+other.String()+"/cancel", fleet.Fields{"reason": "a fire"}); a.Status != http.StatusAccepted {
		t.Fatalf("%v %s", a, a.Body)
	}
	for _, name := range []string{"cancelled", "by hand, then cancelled", "in part, then cancelled", "of a cancelled campaign", "late"} {
		awaitPurchase(s, at[name], "refunded")
	}
	servers.Eventually(t, "a refund has failed", func() bool {
		r := viewPurchase(s, at["resolved"]).Refund()
		return r != nil && r.State == "failed"
	})
	servers.Eventually(t, "the refund is resolved", func() bool { // it is passed over while a worker writes it
		a := s.Post("/v1/campaigns/"+id.String()+"/refunds/resolve", fleet.Fields{"reason": "by bank transfer"})
		if a.Status != http.StatusOK {
			t.Fatalf("%v %s", a, a.Body)
		}
		return strings.Contains(string(a.Body), `"resolved":1`)
	})
	servers.Eventually(t, "the dispute is recorded", func() bool { return viewPurchase(s, at["disputed"]).Dispute != nil })

	// Its buyer authenticates when the reservation is over: what the card has authorized is released.
	asked = buyByCard(s, id, "bob", "pm_card_authenticationRequired")
	awaiting := awaitAction(s, asked)
	at["released"] = awaiting.PurchaseID
	s.StopAll("worker")
	endReservation(s, asked)
	authenticate(t, awaiting.NextAction.URL, "succeed")
	s.RunWorker()
	awaitPurchase(s, at["released"], "failed")
	return at
}

// The provider's books and ours are compared after every kind of end: nothing differs, until
// something is planted.
func TestTheAuditOfPaymentsIsSilentAfterEveryKindOfEndAndLoudForWhatDiffers(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Env: hasty, Sandbox: &stripesim.Settings{Later: 50 * time.Millisecond, Retry: 100 * time.Millisecond}})
	at := everyEnd(s)
	if released := s.Sandbox.Refunds(); !slices.ContainsFunc(released, func(r stripesim.Returned) bool {
		return r.Void && r.Intent == s.Sandbox.PaymentsOf(at["released"].String())[0].ID && r.Status == "succeeded"
	}) {
		t.Fatalf("nothing was released: %+v", released)
	}
	for name, byHand := range map[string]int64{"by hand, then cancelled": 0, "in part, then cancelled": 1} {
		p := viewPurchase(s, at[name])
		if byHand == 0 {
			byHand = p.Amount
		}
		if len(p.Refunds) != 2 || p.Refund().Amount != p.Amount-byHand || p.AmountRefunded != p.Amount || !p.happened("refunded") || !p.happened("refunded-out-of-band") {
			t.Errorf("%s: %+v", name, p)
		}
	}

	from, to := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	env := []string{"TRIPRIZE_POSTGRES_URL=" + s.Settings.Postgres.URL, "TRIPRIZE_REDIS_URL=" + s.Settings.Redis.URL, "TRIPRIZE_REDIS_NAMESPACE=" + s.Settings.Redis.Namespace,
		"TRIPRIZE_PAYMENTS_STRIPE_KEY=" + fleet.SandboxKey, "TRIPRIZE_PAYMENTS_STRIPE_URL=" + s.Sandbox.URL, "TRIPRIZE_PAYMENTS_STRIPE_WEBHOOK_SECRET=" + fleet.WebhookSecret,
		"TRIPRIZE_PAYMENTS_ALLOW_TEST=true", "TRIPRIZE_PAYMENTS_RETURN_URL=" + s.Settings.Payments.ReturnURL}
	var report struct {
		OK bool
		reconciliation.Span
	}
	servers.Eventually(t, "the last events are worked off, and nothing differs", func() bool {
		stdout, stderr, status := run(t, env, "audit", "payments", "--json", "--from", from.UTC().Format(time.RFC3339), "--to", to.UTC().Format(time.RFC3339))
		if err := json.Unmarshal([]byte(stdout), &report); err != nil {
			t.Fatalf("%d %s%s", status, stdout, stderr)
		}
		// A payment that was cancelled is looked at once more after a minute.
		open := slices.ContainsFunc(report.UnderWay, func(d reconciliation.Discrepancy) bool { return d.Detail != "the payment is cancelled" })
		return report.OK && status == 0 && !open
	})
	if all := report.Totals; len(all) != 1 || all[0].Currency != "JPY" || all[0].RefundedHere != all[0].RefundedThere || all[0].CapturedHere != all[0].CapturedThere ||
		all[0].RefundedHere == 0 || all[0].Charges != servers.Value[int](t, s.DB, `SELECT count(*) FROM payments WHERE received > 0`) {
		t.Errorf("%+v", report)
	}

	provider := providerOf(s)
	for name, plant := range map[string]string{
		"paid":                    `UPDATE payments SET phase = 'cancelled', ending = 'expired', received = 0 WHERE purchase_id = $1`,
		"declined":                `UPDATE payments SET phase = 'settled', ending = NULL, received = amount, intent_id = coalesce(intent_id, 'pi_none') WHERE purchase_id = $1`,
		"released":                `UPDATE payments SET phase = 'settled', ending = NULL, received = amount WHERE purchase_id = $1`,
		"cancelled":               `UPDATE refunds SET state = 'failed', finished_at = NULL WHERE purchase_id = $1`,
		"of a cancelled campaign": `UPDATE refunds SET provider_id = NULL WHERE purchase_id = $1`,
		"late":                    `UPDATE refunds SET amount = amount - 1 WHERE purchase_id = $1`,
		"by hand":                 `DELETE FROM refunds WHERE purchase_id = $1`,
		"by hand in part":         `UPDATE refunds SET amount = amount + 1 WHERE purchase_id = $1`,
		"in part, then cancelled": `UPDATE refunds SET amount = amount + 1 WHERE purchase_id = $1 AND number IS NOT NULL`,
		"by hand, and failed":     `UPDATE refunds SET state = 'succeeded', failure = NULL, finished_at = now() WHERE purchase_id = $1`,
		"resolved":                `UPDATE refunds SET state = 'succeeded', failure = NULL, resolved_by = NULL, resolve_reason = NULL WHERE purchase_id = $1`,
		"disputed":                `UPDATE payments SET currency = 'USD' WHERE purchase_id = $1`,
	} {
		undone := errors.New("undone")
		err := postgres.InTx(t.Context(), s.DB, func(tx pgx.Tx) error {
			if tag, err := tx.Exec(t.Context(), plant, at[name]); err != nil || tag.RowsAffected() != 1 {
				return fmt.Errorf("%s: %w, %d rows", name, err, tag.RowsAffected())
			}
			found, err := reconciliation.CompareSpan(context.WithoutCancel(t.Context()), tx, provider, from, to)
			if err != nil || len(found.Differences) != 1 || *found.Differences[0].PurchaseID != at[name] {
				t.Errorf("%s: %+v, %v", name, found.Differences, err)
			}
			return undone
		})
		if !errors.Is(err, undone) {
			t.Error(err)
		}
	}
}
