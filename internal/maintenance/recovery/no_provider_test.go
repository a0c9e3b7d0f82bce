package recovery_test

import (
	"testing"
	"time"

	"triprize/internal/domain/fault"
	"triprize/internal/store/job"
	"triprize/internal/store/payment"
	"triprize/internal/store/purchase"
	"triprize/internal/testkit/fixture"
)

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
		waiting payment.Waiter
	}{
		"reserved, in time":             {"", false, true, purchase.Pending, "", payment.Key},
		"reserved, and over":            {"", true, false, purchase.Failed, fault.ReservationExpired, ""},
		"its key is stored, and over":   {payment.Creating, true, false, purchase.Failed, fault.ReservationExpired, ""},
		"its key is stored, in time":    {payment.Creating, false, true, purchase.Pending, "", payment.Key},
		"at the provider, and over":     {payment.Confirming, true, true, purchase.Pending, "", payment.Key},
		"being captured, and over":      {payment.Capturing, true, true, purchase.Pending, "", payment.Key},
		"captured before":               {payment.Captured, false, false, purchase.Completed, "", ""},
		"ended before":                  {payment.Ended, false, false, purchase.Failed, fault.ReservationExpired, ""},
		"for an operator, and stays so": {payment.Capturing, true, true, purchase.Pending, "", payment.Operator},
	} {
		bought, ref := fixture.Reserve(t, p.db, id, "mina", 1, time.Hour)
		if c.phase != "" {
			fixture.Advance(t, p.db, bought, c.phase)
		}
		if c.waiting == payment.Operator {
			p.exec(`UPDATE payments SET waiting_for = '` + payment.WaitsForOperator + `' WHERE purchase_id = '` + bought.String() + `'`)
		}
		if c.over {
			p.exec(`UPDATE payments SET deadline = clock_timestamp() WHERE purchase_id = '` + bought.String() + `'`)
		}
		p.sweep("expired-reservations")
		p.exec(`UPDATE payments SET due_at = clock_timestamp() WHERE due_at IS NOT NULL`)
		counts := p.sweep("unsettled-payments")
		got, err := purchase.Get(t.Context(), p.db, bought)
		if err != nil {
			t.Fatal(err)
		}
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

// A worker that has a payment goes on with it, whatever a scheduler without a key thinks.
func TestWithoutAKeyNothingIsEndedThatAWorkerHas(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	bought, _ := fixture.Reserve(t, p.db, fixture.Campaign(t, p.db, fixture.Draft(3)), "mina", 1, time.Hour)
	fixture.Advance(t, p.db, bought, payment.Creating)
	fixture.Advance(t, p.db, bought, payment.Expiring)
	before := fixture.Payment(t, p.db, bought)
	if _, ok, err := payment.Claim(t.Context(), p.db, before.Ref(), time.Hour); err != nil || !ok {
		t.Fatal(ok, err)
	}
	tx, err := p.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	claimed := fixture.Payment(t, p.db, bought)
	for name, ref := range map[string]payment.Ref{"an old reference": before.Ref(), "one of another's": claimed.Ref()} {
		if known, _, err := payment.EndUnsent(t.Context(), tx, []payment.Ref{ref}); err != nil || len(known) != 0 {
			t.Errorf("%s: %v, %v", name, known, err)
		}
	}
}
