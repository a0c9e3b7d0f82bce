package upkeep_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/job"
	"triprize/internal/lease"
	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
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
		waiting payment.BlockedBy
	}{
		"reserved, in time":             {"", false, true, purchase.Pending, "", payment.Key},
		"reserved, and over":            {"", true, false, purchase.Failed, fault.ReservationExpired, ""},
		"its key is stored, and over":   {payment.Creating, true, false, purchase.Failed, fault.ReservationExpired, ""},
		"its key is stored, in time":    {payment.Creating, false, true, purchase.Pending, "", payment.Key},
		"at the provider, and over":     {payment.Confirming, true, true, purchase.Pending, "", payment.Key},
		"being captured, and over":      {payment.Capturing, true, true, purchase.Pending, "", payment.Key},
		"captured before":               {payment.Captured, false, false, purchase.Completed, "", ""},
		"ended before":                  {payment.Ended, false, false, purchase.Failed, fault.ReservationExpired, ""},
		"a slow one, given up, over":    {payment.Processing, true, true, purchase.Pending, "", payment.Key},
		"for an operator, and stays so": {payment.Capturing, true, true, purchase.Pending, "", payment.Operator},
	} {
		bought, ref := fixture.Reserve(t, p.db, id, "mina", 1, time.Hour)
		if c.phase != "" {
			fixture.Advance(t, p.db, bought, c.phase)
		}
		if c.phase == payment.Processing { // only the provider knows whether it has succeeded since
			p.exec(`UPDATE payments SET phase = 'expiring', ending = 'expired', uncancellable = true, intent_status = 'processing', livemode = false WHERE purchase_id = '` + bought.String() + `'`)
		}
		if c.waiting == payment.Operator {
			p.exec(`UPDATE payments SET waiting_for = '` + string(payment.WaitsForOperator) + `' WHERE purchase_id = '` + bought.String() + `'`)
		}
		if c.over {
			p.exec(`UPDATE payments SET deadline = clock_timestamp() WHERE purchase_id = '` + bought.String() + `'`)
		}
		p.sweep("expired-reservations")
		p.exec(`UPDATE payments SET due_at = clock_timestamp() WHERE due_at IS NOT NULL`)
		counts := p.sweep("due-items")
		got, err := purchase.Get(t.Context(), p.db, access.Everything(), bought)
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

// A worker that has a payment goes on with it, also when a scheduler has no key.
func TestWithoutAKeyNothingIsEndedThatAWorkerHas(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	id := fixture.Campaign(t, p.db, fixture.Draft(3))
	for _, phases := range [][]payment.Phase{{payment.Creating, payment.Expiring}, {payment.Confirming}, {payment.Captured}} {
		bought, _ := fixture.Reserve(t, p.db, id, "mina", 1, time.Hour)
		for _, phase := range phases {
			fixture.Advance(t, p.db, bought, phase)
		}
		before := fixture.Payment(t, p.db, bought)
		if _, ok, err := payment.Claim(t.Context(), p.db, before.Ref().Item(), time.Hour); err != nil || !ok {
			t.Fatal(ok, err)
		}
		claimed := fixture.Payment(t, p.db, bought)
		for name, ref := range map[string]payment.Ref{"one of another's": claimed.Ref(), "an old reference": before.Ref()} {
			until := `clock_timestamp() + interval '1 hour'`
			if ref == before.Ref() {
				until = `NULL`
			}
			p.exec(`UPDATE payments SET lease_until = ` + until + ` WHERE purchase_id = '` + bought.String() + `'`)
			err := postgres.InTx(t.Context(), p.db, func(tx pgx.Tx) error {
				known, waiting, err := payment.EndUnsent(t.Context(), tx, []lease.Item{ref.Item()})
				if len(known) != 0 || len(waiting) != 0 {
					t.Errorf("%s, %s: known %v, waiting %v", claimed.Phase, name, known, waiting)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		}
	}
}

// What is broken is said, and the others do not suffer.
func TestWithoutAKeyABrokenPaymentHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	p := newSetup(t)
	id := fixture.Campaign(t, p.db, fixture.Draft(4))
	broken, _ := fixture.Reserve(t, p.db, id, "mina", 2, time.Hour)
	sound, _ := fixture.Reserve(t, p.db, id, "otto", 2, time.Hour)
	for _, bought := range []uuid.UUID{broken, sound} {
		fixture.Advance(t, p.db, bought, payment.Captured)
	}
	p.exec(`UPDATE positions SET state = 'available', purchase_id = NULL, user_id = NULL, expires_at = NULL WHERE (campaign_id, layer, col) IN (
		SELECT campaign_id, layer, col FROM positions WHERE purchase_id = '` + broken.String() + `' LIMIT 1)`)
	p.exec(`UPDATE payments SET due_at = clock_timestamp()`)
	p.sweep("due-items")
	for bought, want := range map[uuid.UUID]payment.Phase{broken: payment.Captured, sound: payment.Settled} {
		if paid := fixture.Payment(t, p.db, bought); paid.Phase != want {
			t.Errorf("the payment is %s, want %s", paid.Phase, want)
		}
	}
}
