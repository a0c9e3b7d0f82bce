package cards_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/payprovider"
	"triprize/internal/job"
	"triprize/internal/lease"
	"triprize/internal/payment"
	"triprize/internal/payment/cards"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/provider"
	"triprize/internal/testkit/servers"
)

func commands(db *pgxpool.Pool, sim *provider.Double, due *[]lease.Item) *cards.Service {
	return cards.NewService(db, sim, func(items []lease.Item) { *due = append(*due, items...) }, func(p payment.Payment) any {
		return map[string]any{"phase": p.Phase}
	})
}

// waitingForOperator lets a payment wait for an operator.
func waitingForOperator(t *testing.T, db *pgxpool.Pool, id uuid.UUID) {
	t.Helper()
	servers.Exec(t, db, `UPDATE payments SET waiting_for = $2, faults = 3, due_at = clock_timestamp() + interval '1 hour' WHERE purchase_id = $1`,
		id, payment.WaitsForOperator)
}

// says is what an operator says of a payment as a form shows it.
func says(p payment.Payment, found payment.Finding) payment.Resolution {
	r := payment.Resolution{Version: p.Version, Found: found, By: "operator:ops", Reason: "looked it up"}
	if found == payment.FoundOutOfBand {
		r.Reference = "till-7"
	}
	return r
}

// settles ends a payment by hand, and fails the test when it is refused.
func settles(t *testing.T, db *pgxpool.Pool, sim *provider.Double, id uuid.UUID, found payment.Finding) lease.Item {
	t.Helper()
	var due []lease.Item
	done, err := commands(db, sim, &due).Resolve(t.Context(), fixture.Command(job.KindPaymentResolve), id, says(fixture.Payment(t, db, id), found))
	if err != nil || done.Job.Problem != nil || len(due) != 1 {
		t.Fatalf("%v, %+v, due %v", err, done.Job.Problem, due)
	}
	if p := fixture.Payment(t, db, id); due[0] != p.Ref().Item() || p.WaitingFor != nil || p.ResolvedAs == nil || *p.ResolvedAs != found || *p.ResolvedBy != "operator:ops" ||
		*p.ResolveReason != "looked it up" {
		t.Fatalf("settled: %+v, due %+v", p, due)
	}
	return due[0]
}

func TestAnOperatorEndsAPaymentWithWhatWasFound(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	capturing := func(_, bought uuid.UUID, _ job.Ref) { fixture.Advance(t, db, bought, payment.Capturing) }
	expiring := func(_, bought uuid.UUID, _ job.Ref) {
		fixture.Advance(t, db, bought, payment.Confirming)
		fixture.Advance(t, db, bought, payment.Expiring)
	}
	late := func(id, bought uuid.UUID, ref job.Ref) {
		expiring(id, bought, ref)
		servers.Exec(t, db, `UPDATE payments SET uncancellable = true, deadline = clock_timestamp() WHERE purchase_id = $1`, bought)
		fixture.SettlePayments(t, db, ref)
	}
	cancelled := func(id, bought uuid.UUID, ref job.Ref) {
		expiring(id, bought, ref)
		fixture.EndAs(t, db, bought, payment.Expired)
		fixture.SettlePayments(t, db, ref)
	}
	takenBack := func(id, bought uuid.UUID, _ job.Ref) {
		fixture.Advance(t, db, bought, payment.Capturing)
		back := fixture.Accept(t, db, fixture.CancelRequest(t, id, bought))
		_, err := fixture.Seller(db).Cancel(t.Context(), back, sale.WaitForCampaign)
		servers.NoError(t, err)
	}
	for name, c := range map[string]struct {
		happens func(id, bought uuid.UUID, ref job.Ref)
		found   payment.Finding
		want    string // the purchase, the payment, the problem of the job, a refund, and the positions that are not free
	}{
		"being captured, and paid":         {capturing, payment.FoundPaid, "completed, settled, 2 kept"},
		"being captured, paid at the till": {capturing, payment.FoundOutOfBand, "completed, settled, 2 kept"},
		"late, and paid at the till":       {late, payment.FoundOutOfBand, "refunding, refund_due, reservation-expired, refund late-payment"},
		"being captured, and not paid":     {capturing, payment.FoundUnpaid, "failed, cancelled, payment-not-received"},
		"given up, and paid":               {expiring, payment.FoundPaid, "completed, settled, 2 kept"},
		"given up, and not paid":           {expiring, payment.FoundUnpaid, "failed, cancelled, reservation-expired"},
		"late, and paid":                   {late, payment.FoundPaid, "refunding, refund_due, reservation-expired, refund late-payment"},
		"late, and not paid":               {late, payment.FoundUnpaid, "failed, cancelled, reservation-expired"},
		"ended before, and paid":           {cancelled, payment.FoundPaid, "refunding, refund_due, reservation-expired, refund late-payment"},
		"ended before, and not paid":       {cancelled, payment.FoundUnpaid, "failed, cancelled, reservation-expired"},
		"taken back by its buyer, paid":    {takenBack, payment.FoundPaid, "refunding, refund_due, purchase-cancelled, refund cancelled"},
		"taken back by its buyer, unpaid":  {takenBack, payment.FoundUnpaid, "cancelled, cancelled, purchase-cancelled"},
	} {
		id := fixture.Campaign(t, db, fixture.Draft(4))
		bought, ref := fixture.Reserve(t, db, id, "mina", 2, time.Hour)
		c.happens(id, bought, ref)
		waitingForOperator(t, db, bought)
		sim, p := provider.New(), fixture.Payment(t, db, bought)
		if c.found == payment.FoundPaid {
			sim.Put(payprovider.Intent{ID: *p.IntentID, Status: payprovider.Succeeded, Amount: p.Amount, Received: p.Amount, Currency: p.Currency})
		}
		settles(t, db, sim, bought, c.found)
		fixture.SettlePayments(t, db, ref)

		got := servers.Value[string](t, db, `
			SELECT concat_ws(', ', p.state, y.phase, j.problem->>'code', (SELECT 'refund ' || reason FROM refunds WHERE purchase_id = p.id),
				(SELECT nullif(count(*), 0) || ' kept' FROM positions WHERE campaign_id = p.campaign_id AND state <> 'available'))
			FROM purchases p JOIN payments y ON y.purchase_id = p.id JOIN jobs j ON j.id = p.id WHERE p.id = $1`, bought)
		if got != c.want {
			t.Errorf("%s: %s; want %s", name, got, c.want)
		}
		if steps := stepsOf(t, db, bought); !strings.Contains(steps, "payment-resolved("+strings.TrimSpace(string(c.found)+" "+says(p, c.found).Reference)+", says operator:ops: looked it up)") {
			t.Errorf("%s: the timeline says %s", name, steps)
		}
	}
}

// stepsOf returns the steps of a purchase with their details.
func stepsOf(t *testing.T, db *pgxpool.Pool, id uuid.UUID) string {
	t.Helper()
	steps, err := payment.StepsOf(t.Context(), db, []uuid.UUID{id})
	servers.NoError(t, err)
	var all strings.Builder
	for _, s := range steps {
		all.WriteString(s.Event)
		if s.Detail != nil {
			all.WriteString("(" + *s.Detail + ")")
		}
		all.WriteString(" ")
	}
	return all.String()
}

func TestAPaymentThatCanStillEndByItselfIsNotSettled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	for name, c := range map[string]struct{ set, why string }{
		"it does not wait":                   {`waiting_for = NULL`, "only a payment that waits for an operator"},
		"it waits for the provider":          {`waiting_for = 'turn', waiting_since = clock_timestamp()`, "only a payment that waits for an operator"},
		"cards are switched off":             {`waiting_for = '` + string(payment.WaitsForKey) + `', waiting_since = clock_timestamp()`, "only a payment that waits for an operator"},
		"its time can still end it":          {`phase = 'action'`, "may still be paid until"},
		"it has nothing at the provider":     {`phase = 'expiring', intent_id = NULL, ending = 'expired'`, "has not reached the provider"},
		"a worker is just looking at it":     {`lease_until = clock_timestamp() + interval '1 hour'`, "a worker is checking"},
		"its end is known, and it is on way": {`phase = 'captured', received = amount, waiting_for = NULL`, "only a payment that waits for an operator"},
		"an older form":                      {`version = version + 1`, "has changed since you read it"},
	} {
		id := b.reserve("pm_card_visa")
		b.exec(`UPDATE payments SET phase = 'capturing', intent_id = 'pi_' || $1, waiting_for = $2 WHERE purchase_id = $1::uuid`, id.String(), payment.WaitsForOperator)
		read := b.get(id)
		b.exec(`UPDATE payments SET `+c.set+` WHERE purchase_id = $1`, id)
		before := b.get(id)
		if !strings.Contains(c.set, "version") {
			read = before
		}
		for _, found := range []payment.Finding{payment.FoundPaid, payment.FoundUnpaid} {
			var due []lease.Item
			done, err := commands(b.db, b.sim, &due).Resolve(t.Context(), fixture.Command(job.KindPaymentResolve), id, says(read, found))
			if err != nil || done.Job.Problem == nil || done.Job.Problem.Code != fault.StateConflict || !strings.Contains(done.Job.Problem.Detail, c.why) {
				t.Errorf("%s: %v, %+v", name, err, done.Job.Problem)
			}
		}
		if after := b.get(id); after.Version != before.Version || after.Phase != before.Phase || after.ResolvedAs != nil || len(b.steps(id)) != 0 {
			t.Errorf("%s: it was changed to %+v", name, after)
		}
	}
	var due []lease.Item
	if done, err := commands(b.db, b.sim, &due).Resolve(t.Context(), fixture.Command(job.KindPaymentResolve), uuid.New(), says(payment.Payment{}, payment.FoundPaid)); err != nil ||
		done.Job.Problem == nil || done.Job.Problem.Code != fault.NotFound {
		t.Errorf("none: %v, %+v", err, done.Job.Problem)
	}
}

// Who has cancelled a purchase sees what its end waits for.
func TestACancellationSaysWhatItsPaymentWaitsFor(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	campaignID := fixture.Campaign(t, b.db, fixture.Draft(3))
	id, _ := fixture.Reserve(t, b.db, campaignID, "mina", 1, time.Hour)
	fixture.Advance(t, b.db, id, payment.Capturing)
	back := fixture.Accept(t, b.db, fixture.CancelRequest(t, campaignID, id))
	_, err := fixture.Seller(b.db).Cancel(t.Context(), back, sale.WaitForCampaign)
	servers.NoError(t, err)
	waits := func(want payment.BlockedReason) {
		t.Helper()
		j := fixture.Job(t, b.db, back[0].ID)
		if j.State != job.Queued || j.Progress == nil || j.Progress.Waiting == nil || j.Progress.Waiting.Reason != want.Text() || j.Progress.Waiting.RetryAt.IsZero() {
			t.Errorf("the cancellation is %s, and waits for %+v", j.State, j.Progress)
		}
	}
	b.sim.Fail(provider.Failed(payprovider.KindUnavailable, ""))
	b.want(id, cards.Waits, payment.Capturing)
	waits(payment.WaitsForProvider)
	b.sim.Mend()
	b.want(id, cards.Waits, payment.Capturing) // the intent is gone
	waits(payment.WaitsForOperator)
}
