package upkeep_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/access"
	"triprize/internal/domain/payprovider"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/entry/upkeep"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/payment/cards"
	"triprize/internal/platform/sweep"
	"triprize/internal/purchase"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// openRefund makes a card refund that nobody has asked the provider for.
func (p *setup) openRefund(campaignID uuid.UUID) uuid.UUID {
	p.t.Helper()
	bought, _ := fixture.BuyByCard(p.t, p.db, campaignID, "otto", 0, 1)
	servers.Exec(p.t, p.db, `INSERT INTO refunds (id, purchase_id, number, campaign_id, user_id, method, amount, currency, reason, state, due_at)
		SELECT id, id, 1, campaign_id, user_id, 'card', amount, currency, 'campaign-cancelled', 'open', clock_timestamp() FROM purchases WHERE id = $1`, bought)
	return bought
}

// forOperators returns how many payments and refunds wait for an operator.
func (p *setup) forOperators() (payments, refunds int) {
	p.t.Helper()
	counts, err := payment.CountWaiting(p.t.Context(), p.db)
	if err != nil {
		p.t.Fatal(err)
	}
	if refunds, err = payment.CountRefundsForOperator(p.t.Context(), p.db); err != nil {
		p.t.Fatal(err)
	}
	return counts[payment.Operator], refunds
}

// The key is removed for 60 days: everything that waits for it can be ended by an operator,
// and nothing keeps a cancelled campaign from its end.
func TestWhatWaitsForAKeyForLongIsTheOperatorsWhoCanEndIt(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	id := fixture.Campaign(t, p.db, fixture.Draft(6))
	capturing, _ := fixture.Reserve(t, p.db, id, "mina", 1, time.Hour)
	fixture.Advance(t, p.db, capturing, payment.Capturing)
	confirming, _ := fixture.Reserve(t, p.db, id, "gina", 1, time.Hour)
	fixture.Advance(t, p.db, confirming, payment.Confirming)
	p.openRefund(id)
	p.exec(`UPDATE payments SET deadline = clock_timestamp() WHERE phase = 'confirming'`)
	p.sweep("expired-reservations")
	due := func() sweep.Counts {
		p.exec(`UPDATE payments SET due_at = clock_timestamp() WHERE due_at IS NOT NULL`)
		p.exec(`UPDATE refunds SET due_at = clock_timestamp() WHERE due_at IS NOT NULL`)
		return p.sweep("due-items")
	}
	if got := due(); got["payments_waiting"] != 2 || got["refunds_waiting"] != 1 {
		t.Fatalf("%v", got)
	}
	p.exec(`UPDATE payments SET waiting_since = waiting_since - interval '5 hours'`)
	p.exec(`UPDATE refunds SET waiting_since = waiting_since - interval '5 hours'`)
	due()
	if payments, refunds := p.forOperators(); payments != 0 || refunds != 0 {
		t.Fatalf("after 5 hours %d payments and %d refunds are the operators'", payments, refunds)
	}
	p.exec(`UPDATE payments SET waiting_since = waiting_since - interval '60 days'`)
	p.exec(`UPDATE refunds SET waiting_since = waiting_since - interval '60 days'`)
	due()
	due()
	if payments, refunds := p.forOperators(); payments != 2 || refunds != 1 {
		t.Fatalf("after 60 days %d payments and %d refunds are the operators'", payments, refunds)
	}
	if reason := reasonOf(fixture.Payment(t, p.db, capturing)); reason == nil || !strings.Contains(*reason, "key") {
		t.Errorf("an operator does not see why: %v", reason)
	}
	counts, err := payment.CountCancelledRefunds(t.Context(), p.db, id)
	if err != nil || counts.UnderWay != 0 || counts.ForPeople != 1 {
		t.Errorf("the end of the campaign waits for refunds: %+v, %v", counts, err)
	}
	service := cards.NewService(p.db, false, nil, func(payment.Payment) any { return nil })
	for bought, found := range map[uuid.UUID]payment.Finding{capturing: payment.FoundPaid, confirming: payment.FoundUnpaid} {
		key := uuidv7.New()
		done, err := service.Resolve(t.Context(), job.Request{ID: key, Client: "ops", Key: key.String(), Kind: job.KindPaymentResolve, Keep: time.Hour, HTTPStatus: 200},
			bought, found, "operator:ops", "looked it up")
		if err != nil || done.Job.Problem != nil {
			t.Fatalf("%s: %v, %+v", found, err, done.Job.Problem)
		}
	}
	due()
	for bought, want := range map[uuid.UUID]purchase.State{capturing: purchase.Completed, confirming: purchase.Failed} {
		if got, err := purchase.Get(t.Context(), p.db, access.Everything(), bought); err != nil || got.State != want {
			t.Errorf("the purchase is %s, want %s, %v", got.State, want, err)
		}
	}
	if open, err := payment.CountOpen(t.Context(), p.db, id); err != nil || open != 0 {
		t.Errorf("%d payments are open, %v", open, err)
	}
}

func reasonOf(p payment.Payment) *string { return p.Reason() }

// Each wait for the provider becomes the operators' in time, but what a worker has; all of it
// is due as before, so that it goes on by itself.
func TestWhatWaitsForTheProviderForLongIsTheOperatorsAndStaysDue(t *testing.T) {
	t.Parallel()
	p := withKey(t)
	id := fixture.Campaign(t, p.db, fixture.Draft(10))
	for _, reason := range []payment.BlockedReason{payment.WaitsForAnswer, payment.WaitsForProvider, payment.WaitsForTurn} {
		for _, c := range []struct{ since, lease, waiter string }{
			{`7 hours`, `NULL`, `operator`}, {`5 hours`, `NULL`, `provider`}, {`7 hours`, `clock_timestamp() + interval '1 hour'`, `provider`},
		} {
			bought, _ := fixture.Reserve(t, p.db, id, "mina", 1, time.Hour)
			servers.Exec(t, p.db, `UPDATE payments SET waiting_for = $2, waiting_since = clock_timestamp() - $3::interval, last_error = 'oops',
				lease_until = `+c.lease+`, cancel_reason = $4, due_at = clock_timestamp() + interval '1 minute' WHERE purchase_id = $1`, bought, reason, c.since, c.waiter)
		}
	}
	for range 2 {
		p.openRefund(id)
	}
	p.exec(`UPDATE refunds SET faults = 9, waiting_since = clock_timestamp() - interval '7 hours', due_at = clock_timestamp() + interval '1 minute'`)
	p.exec(`UPDATE refunds SET lease_until = clock_timestamp() + interval '1 hour' WHERE id = (SELECT min(id::text)::uuid FROM refunds)`)
	if got := p.sweep("due-items"); got["payments_escalated"] != 3 || got["refunds_escalated"] != 1 {
		t.Errorf("%v", got)
	}
	if got := p.sweep("due-items"); got["payments_escalated"] != 0 || got["refunds_escalated"] != 0 {
		t.Errorf("again %v", got)
	}
	if payments, refunds := p.forOperators(); payments != 3 || refunds != 1 {
		t.Errorf("%d payments and %d refunds are the operators'", payments, refunds)
	}
	var wrong, due int
	err := p.db.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE last_error <> 'oops' OR (waiting_for = 'operator') <> (cancel_reason = 'operator')),
		count(*) FILTER (WHERE due_at IS NOT NULL) FROM payments WHERE waiting_for IS NOT NULL`).Scan(&wrong, &due)
	if err != nil || wrong != 0 || due != 9 {
		t.Errorf("%d are wrong, %d due, %v", wrong, due, err)
	}
}

// permissions is a key of the provider.
type permissions struct {
	payprovider.Provider
	has map[string]bool
	err error
}

func (k permissions) CheckPermissions(context.Context) (map[string]bool, error) { return k.has, k.err }

func TestWhatTheKeyLacksIsLoggedAndCounted(t *testing.T) {
	t.Parallel()
	p := withKey(t)
	if got := p.sweep("missing-permissions"); got["asked"] != 0 {
		t.Errorf("without a key: %v", got)
	}
	away := errors.New("away")
	p.with(upkeep.Options{Provider: permissions{has: map[string]bool{"charge_write": false, "event_read": true}, err: away}})
	report, err := p.run("missing-permissions")
	if !errors.Is(err, away) || report.Counts["asked"] != 2 || report.Counts["missing"] != 1 {
		t.Errorf("%v, %v", report.Counts, err)
	}
}
