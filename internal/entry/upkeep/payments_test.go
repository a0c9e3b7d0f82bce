package upkeep_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/payprovider"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/entry/upkeep"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/payment/cards"
	"triprize/internal/platform/queue"
	"triprize/internal/platform/redisx"
	"triprize/internal/platform/stripe"
	"triprize/internal/platform/sweep"
	"triprize/internal/purchase"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// withKey returns a setup with a provider of payments.
func withKey(t *testing.T) *setup {
	t.Helper()
	p := newSetup(t)
	p.takesCards()
	return p
}

func (p *setup) takesCards() {
	p.settings.Payments.Stripe.Key, p.settings.Payments.Recheck = "sk_test_key", time.Hour
	p.with(upkeep.Options{})
}

// dueCards reserves positions by card, whose payments are due now.
func (p *setup) dueCards(n int) {
	p.t.Helper()
	id := fixture.Campaign(p.t, p.db, fixture.Draft(10))
	for range n {
		fixture.Reserve(p.t, p.db, id, uuid.NewString(), 1, time.Hour)
	}
	p.exec(`UPDATE payments SET due_at = clock_timestamp()`)
}

func (p *setup) exec(sql string) {
	p.t.Helper()
	servers.Exec(p.t, p.db, sql)
}

func (p *setup) queued(kind job.Kind) int64 {
	p.t.Helper()
	n, err := p.rdb.LLen(context.Background(), "asynq:{"+queue.Name(p.settings.Redis.Namespace, string(kind))+"}:pending").Result()
	servers.NoError(p.t, err)
	return n
}

func TestPaymentsStayDueWhenRedisIsAway(t *testing.T) {
	t.Parallel()
	p := withKey(t)
	p.dueCards(3)
	server := servers.OwnRedis(t)
	p.settings.Redis.URL = server.URL()
	rdb, err := redisx.Open(p.settings.Redis, "test")
	servers.NoError(t, err)
	_ = rdb.Close() // as if it were away
	p.sweeper = upkeep.New(p.settings, p.db, rdb, servers.Logger(t), upkeep.Options{})
	if _, err := p.run("due-items"); err == nil {
		t.Fatal("nothing was enqueued, and the sweep says that all is well")
	}
	if due, err := payment.Leases.TakeDue(t.Context(), p.db, time.Hour, 10); err != nil || len(due) != 3 {
		t.Errorf("%d are due, %v", len(due), err)
	}
}

// missed is a provider that remembers one event.
type missed struct {
	payprovider.Provider
	event payprovider.Event
}

func (missed) Subjects() map[string]payprovider.Subject { return stripe.NewReader(false).Subjects() }

func (l missed) ListEvents(_ context.Context, from, to time.Time, _ []string, yield func(payprovider.Event) error) error {
	if l.event.CreatedAt.Before(from) || !l.event.CreatedAt.Before(to) {
		return nil
	}
	return yield(l.event)
}

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
	counts, _, err := payment.CountWaiting(p.t.Context(), p.db)
	servers.NoError(p.t, err)
	if refunds, err = payment.CountRefundsForOperator(p.t.Context(), p.db); err != nil {
		p.t.Fatal(err)
	}
	return counts[payment.WaitsForOperator], refunds
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
	paid := fixture.Payment(t, p.db, capturing)
	if reason := paid.Reason(); reason == nil || !strings.Contains(*reason, "key") {
		t.Errorf("an operator does not see why: %v", reason)
	}
	counts, err := payment.CountCancelledRefunds(t.Context(), p.db, id)
	if err != nil || counts.UnderWay != 0 || counts.ForPeople != 1 {
		t.Errorf("the end of the campaign waits for refunds: %+v, %v", counts, err)
	}
	service := cards.NewService(p.db, nil, nil, func(payment.Payment) any { return nil })
	for bought, found := range map[uuid.UUID]payment.Finding{capturing: payment.FoundOutOfBand, confirming: payment.FoundUnpaid} {
		key := uuidv7.New()
		done, err := service.Resolve(t.Context(), job.Request{ID: key, Client: "ops", Key: key.String(), Kind: job.KindPaymentResolve, Retention: time.Hour, HTTPStatus: 200},
			bought, payment.Resolution{Version: fixture.Payment(t, p.db, bought).Version, Found: found, Reference: map[payment.Finding]string{payment.FoundOutOfBand: "till-7"}[found], By: "operator:ops", Reason: "looked it up"})
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

// The key is removed while payments are under way. Where nothing was sent nothing can have
// been paid, so these end at their deadline; those that are at the provider wait, and say
// why; what needs no provider goes on.
func TestWithoutAKeyWhatWasNeverSentEndsAndTheRestWaits(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	id := fixture.Campaign(t, p.db, fixture.Draft(6))
	for name, c := range map[string]struct {
		phase   payment.Phase // "": as it was reserved
		over    bool
		waits   bool
		state   purchase.State
		code    fault.Code
		waiting payment.BlockedReason
	}{
		"reserved, in time":             {"", false, true, purchase.Pending, "", payment.WaitsForKey},
		"reserved, and over":            {"", true, false, purchase.Failed, fault.ReservationExpired, ""},
		"its key is stored, and over":   {payment.Creating, true, false, purchase.Failed, fault.ReservationExpired, ""},
		"its key is stored, in time":    {payment.Creating, false, true, purchase.Pending, "", payment.WaitsForKey},
		"at the provider, and over":     {payment.Confirming, true, true, purchase.Pending, "", payment.WaitsForKey},
		"being captured, and over":      {payment.Capturing, true, true, purchase.Pending, "", payment.WaitsForKey},
		"captured before":               {payment.Captured, false, false, purchase.Completed, "", ""},
		"ended before":                  {payment.Ended, false, false, purchase.Failed, fault.ReservationExpired, ""},
		"a slow one, given up, over":    {payment.Processing, true, true, purchase.Pending, "", payment.WaitsForKey},
		"for an operator, and stays so": {payment.Capturing, true, true, purchase.Pending, "", payment.WaitsForOperator},
	} {
		bought, ref := fixture.Reserve(t, p.db, id, "mina", 1, time.Hour)
		if c.phase != "" {
			fixture.Advance(t, p.db, bought, c.phase)
		}
		if c.phase == payment.Processing { // only the provider knows whether it has succeeded since
			p.exec(`UPDATE payments SET phase = 'expiring', ending = 'expired', uncancellable = true, intent_status = 'processing', livemode = false WHERE purchase_id = '` + bought.String() + `'`)
		}
		if c.waiting == payment.WaitsForOperator {
			p.exec(`UPDATE payments SET waiting_for = '` + string(payment.WaitsForOperator) + `' WHERE purchase_id = '` + bought.String() + `'`)
		}
		if c.over {
			p.exec(`UPDATE payments SET deadline = clock_timestamp() WHERE purchase_id = '` + bought.String() + `'`)
		}
		p.sweep("expired-reservations")
		p.exec(`UPDATE payments SET due_at = clock_timestamp() WHERE due_at IS NOT NULL`)
		counts := p.sweep("due-items")
		got, err := purchase.Get(t.Context(), p.db, access.Everything(), bought)
		servers.NoError(t, err)
		var code fault.Code
		j := fixture.Job(t, p.db, ref.ID)
		if j.Problem != nil {
			code = j.Problem.Code
		}
		paid := fixture.Payment(t, p.db, bought)
		if got.State != c.state || code != c.code || paid.WaitsFor() != c.waiting || j.State.Final() == c.waits || paid.Phase.Final() == c.waits {
			t.Errorf("%s: purchase %s, payment %s waiting for %q, job %s %s; %v", name, got.State, paid.Phase, paid.WaitsFor(), j.State, code, counts)
		}
	}
	if n := p.queued(job.KindPayment); n != 0 {
		t.Errorf("%d tasks that nobody takes", n)
	}
}
