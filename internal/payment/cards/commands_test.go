package cards_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/payprovider"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/lease"
	"triprize/internal/payment"
	"triprize/internal/payment/cards"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func request(kind job.Kind) job.Request {
	id := uuidv7.New()
	return job.Request{ID: id, Client: "ops", Key: id.String(), Kind: kind, Keep: time.Hour, HTTPStatus: 200}
}

func commands(db *pgxpool.Pool, due *[]lease.Item) *cards.Service {
	return cards.NewService(db, true, func(items []lease.Item) { *due = append(*due, items...) }, func(p payment.Payment) any {
		return map[string]any{"phase": p.Phase}
	})
}

// waitingForOperator lets a payment wait for an operator.
func waitingForOperator(t *testing.T, db *pgxpool.Pool, id uuid.UUID) {
	t.Helper()
	servers.Exec(t, db, `UPDATE payments SET waiting_for = $2, faults = 3, due_at = clock_timestamp() + interval '1 hour' WHERE purchase_id = $1`,
		id, payment.WaitsForOperator)
}

// settles ends a payment by hand, and fails the test when it is refused.
func settles(t *testing.T, db *pgxpool.Pool, id uuid.UUID, found payment.Finding) lease.Item {
	t.Helper()
	var due []lease.Item
	done, err := commands(db, &due).Resolve(t.Context(), request(job.KindPaymentResolve), id, found, "operator:ops", "looked it up")
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
		fixture.Conclude(t, db, ref)
	}
	cancelled := func(id, bought uuid.UUID, ref job.Ref) {
		expiring(id, bought, ref)
		fixture.EndAs(t, db, bought, payment.Expired)
		fixture.Conclude(t, db, ref)
	}
	takenBack := func(id, bought uuid.UUID, _ job.Ref) {
		fixture.Advance(t, db, bought, payment.Capturing)
		back := fixture.Accept(t, db, fixture.CancelRequest(t, id, bought))
		if _, err := fixture.Seller(db).Cancel(t.Context(), back, sale.WaitForCampaign); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		happens func(id, bought uuid.UUID, ref job.Ref)
		found   payment.Finding
		state   purchase.State
		phase   payment.Phase
		code    fault.Code
		refund  payment.RefundReason
		kept    bool // the positions are its own
	}{
		"being captured, and paid":        {capturing, payment.FoundPaid, purchase.Completed, payment.Settled, "", "", true},
		"being captured, and not paid":    {capturing, payment.FoundUnpaid, purchase.Failed, payment.Cancelled, fault.PaymentNotReceived, "", false},
		"given up, and paid":              {expiring, payment.FoundPaid, purchase.Completed, payment.Settled, "", "", true},
		"given up, and not paid":          {expiring, payment.FoundUnpaid, purchase.Failed, payment.Cancelled, fault.ReservationExpired, "", false},
		"late, and paid":                  {late, payment.FoundPaid, purchase.Refunding, payment.RefundDue, fault.ReservationExpired, payment.RefundLatePayment, false},
		"late, and not paid":              {late, payment.FoundUnpaid, purchase.Failed, payment.Cancelled, fault.ReservationExpired, "", false},
		"ended before, and paid":          {cancelled, payment.FoundPaid, purchase.Refunding, payment.RefundDue, fault.ReservationExpired, payment.RefundLatePayment, false},
		"ended before, and not paid":      {cancelled, payment.FoundUnpaid, purchase.Failed, payment.Cancelled, fault.ReservationExpired, "", false},
		"taken back by its buyer, paid":   {takenBack, payment.FoundPaid, purchase.Refunding, payment.RefundDue, fault.PurchaseCancelled, payment.RefundPurchaseCancelled, false},
		"taken back by its buyer, unpaid": {takenBack, payment.FoundUnpaid, purchase.Cancelled, payment.Cancelled, fault.PurchaseCancelled, "", false},
	} {
		id := fixture.Campaign(t, db, fixture.Draft(4))
		bought, ref := fixture.Reserve(t, db, id, "mina", 2, time.Hour)
		c.happens(id, bought, ref)
		waitingForOperator(t, db, bought)
		settles(t, db, bought, c.found)
		fixture.Conclude(t, db, ref)

		p, kept := fixture.Payment(t, db, bought), 0
		got, err := purchase.Get(t.Context(), db, access.Everything(), bought)
		if err != nil {
			t.Fatal(err)
		}
		if err := db.QueryRow(t.Context(), `SELECT count(*) FROM positions WHERE campaign_id = $1 AND state <> $2`, id, string(inventory.Available)).Scan(&kept); err != nil {
			t.Fatal(err)
		}
		refunds, err := payment.RefundsOfPurchases(t.Context(), db, []uuid.UUID{bought})
		if err != nil {
			t.Fatal(err)
		}
		var code fault.Code
		var back payment.RefundReason
		for _, r := range refunds[bought] {
			back = r.Reason
		}
		if problem := fixture.Job(t, db, ref.ID).Problem; problem != nil {
			code = problem.Code
		}
		if got.State != c.state || p.Phase != c.phase || code != c.code || back != c.refund || (kept == 2) != c.kept || kept != 0 && !c.kept {
			t.Errorf("%s: purchase %s, payment %s, job %s, refund %q, %d positions kept", name, got.State, p.Phase, code, back, kept)
		}
		if steps := stepsOf(t, db, bought); !strings.Contains(steps, "payment-resolved("+string(c.found)+", says operator:ops: looked it up)") {
			t.Errorf("%s: the timeline says %s", name, steps)
		}
	}
}

// stepsOf returns the steps of a purchase with their details.
func stepsOf(t *testing.T, db *pgxpool.Pool, id uuid.UUID) string {
	t.Helper()
	steps, err := payment.StepsOf(t.Context(), db, []uuid.UUID{id})
	if err != nil {
		t.Fatal(err)
	}
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
	} {
		id := b.reserve("pm_card_visa")
		b.exec(`UPDATE payments SET phase = 'capturing', intent_id = 'pi_' || $1, waiting_for = $2 WHERE purchase_id = $1::uuid`, id.String(), payment.WaitsForOperator)
		b.exec(`UPDATE payments SET `+c.set+` WHERE purchase_id = $1`, id)
		before := b.get(id)
		for _, found := range []payment.Finding{payment.FoundPaid, payment.FoundUnpaid} {
			var due []lease.Item
			done, err := commands(b.db, &due).Resolve(t.Context(), request(job.KindPaymentResolve), id, found, "operator:ops", "r")
			if err != nil || done.Job.Problem == nil || done.Job.Problem.Code != fault.StateConflict || !strings.Contains(done.Job.Problem.Detail, c.why) {
				t.Errorf("%s: %v, %+v", name, err, done.Job.Problem)
			}
		}
		if after := b.get(id); after.Version != before.Version || after.Phase != before.Phase || after.ResolvedAs != nil || len(b.steps(id)) != 0 {
			t.Errorf("%s: it was changed to %+v", name, after)
		}
	}
	var due []lease.Item
	if done, err := commands(b.db, &due).Resolve(t.Context(), request(job.KindPaymentResolve), uuid.New(), payment.FoundPaid, "operator:ops", "r"); err != nil ||
		done.Job.Problem == nil || done.Job.Problem.Code != fault.NotFound {
		t.Errorf("none: %v, %+v", err, done.Job.Problem)
	}
}

// The write has the conditions, too: a change of the payment since it was read is not
// overwritten.
func TestASettlementIsWrittenUnderItsVersion(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.reserve("pm_card_visa")
	b.exec(`UPDATE payments SET phase = 'capturing', intent_id = 'pi_1', waiting_for = $2 WHERE purchase_id = $1`, id, payment.WaitsForOperator)
	read := b.get(id)
	for name, set := range map[string]string{
		"another version": `version = version + 1`, "it waits no more": `waiting_for = NULL`, "a lease": `lease_until = clock_timestamp() + interval '1 hour'`,
		"before its capture": `phase = 'confirming'`,
	} {
		tx, err := b.db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		servers.Exec(t, tx, `UPDATE payments SET `+set+` WHERE purchase_id = $1`, id)
		var batch pgx.Batch
		payment.QueueResolve(&batch, &read, payment.FoundUnpaid, "operator:ops", "r")
		if err := tx.SendBatch(t.Context(), &batch).Close(); fault.CodeOf(err) != fault.StateConflict {
			t.Errorf("%s: %v", name, err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// A worker that was stopped in the middle comes back after an operator has resolved: it
// writes nothing.
func TestAStoppedWorkerIsFencedByASettlement(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.reserve("pm_card_visa")
	b.exec(`UPDATE payments SET phase = 'capturing', attempt = 1, attempt_at = clock_timestamp(), intent_id = 'pi_1', waiting_for = $2 WHERE purchase_id = $1`, id, payment.WaitsForOperator)
	stopped, ok, err := payment.Claim(t.Context(), b.db, b.ref(id), time.Hour)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	b.endLease(id)
	settles(t, b.db, id, payment.FoundUnpaid)
	stopped.Phase, stopped.Received = payment.Captured, stopped.Amount
	if err := payment.Write(t.Context(), b.db, &stopped, payment.Always, 0, nil); !errors.Is(err, lease.ErrFenced) {
		t.Errorf("the stopped worker has written: %v", err)
	}
	if p := b.get(id); p.Phase != payment.Ended || *p.Ending != payment.Unpaid {
		t.Errorf("it is %s", p.Phase)
	}
}

// An intent that is gone at the provider is an unexpected state. What an operator has resolved
// is not reported again, and money that comes after all is found.
// As long as the provider says what it said when the operator looked, nobody is called
// again. Anything else that it says is somebody's money, and calls an operator.
func TestWhatAnOperatorHasSettledWaitsAgainOnlyForSomethingNew(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.reserve("pm_action")
	p := b.want(id, cards.Waits, payment.Action)
	there := b.sim.intents[*p.IntentID]
	delete(b.sim.intents, *p.IntentID)
	b.sim.before = func(call, _ string) error {
		if call == "cancel" && b.sim.intents[*p.IntentID] == nil {
			return failed(payprovider.KindRefused, "resource_missing")
		}
		return nil
	}
	b.giveUp(id)
	if p := b.want(id, cards.Waits, payment.Expiring); p.WaitsFor() != payment.Operator || !strings.Contains(*p.Reason(), "resource_missing") {
		t.Fatalf("it waits for %v: %v", p.WaitingFor, p.Reason())
	}
	settles(t, b.db, id, payment.FoundUnpaid)
	if r := b.run(id); r.Outcome != cards.Conclude {
		t.Fatalf("%+v", r)
	}
	b.conclude(id)
	for range 2 {
		b.exec(`UPDATE payments SET due_at = clock_timestamp() WHERE purchase_id = $1`, id)
		if p := b.want(id, cards.Nothing, payment.Cancelled); p.WaitingFor != nil || p.DueAt != nil {
			t.Errorf("it waits for %v, and is due at %v", p.WaitingFor, p.DueAt)
		}
	}
	there.Status = payprovider.RequiresCapture // authorized, and the provider will not let it go
	b.sim.intents[there.ID] = there
	b.sim.before = func(call, _ string) error {
		if call == "cancel" {
			return failed(payprovider.KindRefused, "not_now")
		}
		return nil
	}
	if p := b.want(id, cards.Waits, payment.Cancelled); p.WaitsFor() != payment.Operator || p.DueAt == nil {
		t.Errorf("an authorization that stays waits for %v, and is due at %v", p.WaitingFor, p.DueAt)
	}
	settles(t, b.db, id, payment.FoundUnpaid)
	if b.get(id).DueAt == nil { // an event may have told of money since the operator looked
		t.Error("what was cancelled is not looked at after its resolution")
	}
	if p := b.want(id, cards.Nothing, payment.Cancelled); p.WaitingFor != nil || p.DueAt != nil {
		t.Errorf("it waits for %v, and is due at %v", p.WaitingFor, p.DueAt)
	}
	there.Status, there.Received = payprovider.Succeeded, there.Amount
	b.want(id, cards.Conclude, payment.Captured)
}

func TestARetryHasAPaymentLookedAtNow(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	id := b.reserve("pm_card_visa")
	var due []lease.Item
	retry := func(r job.Request) (phase string, problem *job.Problem) {
		done, err := commands(b.db, &due).Retry(t.Context(), r, id)
		if err != nil {
			t.Fatal(err)
		}
		var body map[string]string
		_ = json.Unmarshal(done.Job.Result, &body)
		return body["phase"], done.Job.Problem
	}
	if _, problem := retry(request(job.KindPaymentRetry)); problem == nil || problem.Code != fault.StateConflict {
		t.Errorf("one that does not wait: %+v", problem)
	}
	b.sim.before = func(string, string) error { return failed(payprovider.KindUnavailable, "") }
	b.want(id, cards.Waits, payment.Creating)
	b.exec(`UPDATE payments SET due_at = clock_timestamp() + interval '1 hour' WHERE purchase_id = $1`, id)
	b.sim.before = nil
	r := request(job.KindPaymentRetry)
	for range 2 { // the second is the same request again
		if phase, problem := retry(r); problem != nil || phase != "creating" {
			t.Errorf("%s, %+v", phase, problem)
		}
	}
	off := cards.NewService(b.db, false, nil, func(payment.Payment) any { return nil })
	unpaid := b.reserve("pm_card_visa")
	b.exec(`UPDATE payments SET waiting_for = $2, waiting_since = clock_timestamp(), due_at = NULL WHERE purchase_id = $1`, unpaid, payment.WaitsForKey)
	if done, err := off.Retry(t.Context(), request(job.KindPaymentRetry), unpaid); err != nil || done.Job.Problem == nil || done.Job.Problem.Code != fault.StateConflict {
		t.Errorf("while cards are switched off: %+v, %v", done.Job.Problem, err)
	}
	taken, err := payment.Agenda.TakeDue(t.Context(), b.db, time.Hour, 10)
	if err != nil || len(taken) != 1 || len(due) != 1 || due[0].ID != id {
		t.Errorf("due are %v, %v; dispatched %v", taken, err, due)
	}
	b.want(id, cards.Conclude, payment.Captured)
}

// Who has cancelled a purchase sees what its end waits for.
func TestACancellationSaysWhatItsPaymentWaitsFor(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	campaignID := fixture.Campaign(t, b.db, fixture.Draft(3))
	id, _ := fixture.Reserve(t, b.db, campaignID, "mina", 1, time.Hour)
	fixture.Advance(t, b.db, id, payment.Capturing)
	back := fixture.Accept(t, b.db, fixture.CancelRequest(t, campaignID, id))
	if _, err := fixture.Seller(b.db).Cancel(t.Context(), back, sale.WaitForCampaign); err != nil {
		t.Fatal(err)
	}
	waits := func() *job.Waiting {
		t.Helper()
		j := fixture.Job(t, b.db, back[0].ID)
		if j.State != job.Queued {
			t.Fatalf("the cancellation is %s: %+v", j.State, j.Problem)
		}
		if j.Progress == nil {
			return nil
		}
		return j.Progress.Waiting
	}
	b.sim.before = func(string, string) error { return failed(payprovider.KindUnavailable, "") }
	b.want(id, cards.Waits, payment.Capturing)
	if w := waits(); w == nil || w.Reason != payment.WaitsForProvider.Text() || w.RetryAt.IsZero() {
		t.Errorf("while the provider is away it says %+v", w)
	}
	b.sim.before = nil
	b.want(id, cards.Waits, payment.Capturing) // the intent is gone
	if w := waits(); w == nil || w.Reason != payment.WaitsForOperator.Text() {
		t.Errorf("while it waits for an operator it says %+v", w)
	}
}
