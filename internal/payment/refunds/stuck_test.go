package refunds_test

import (
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/payprovider"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/payment/refunds"
	"triprize/internal/purchase"
	"triprize/internal/testkit/servers"
)

// stuckWorld is a world whose refund may exist at the provider, which refuses to tell of it.
func stuckWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.provider.fault = func(call string) (error, bool) {
		if call == "create" {
			return errLost, true
		}
		return &payprovider.Error{Kind: payprovider.KindRefused, Call: call, Code: "resource_missing", Message: "No such payment_intent"}, true
	}
	w.run()
	if r := w.refund(); r.Stuck || r.ForOperator() {
		t.Fatalf("an answer that was lost: %+v", r)
	}
	if result := w.run(); result != refunds.Waits {
		t.Fatalf("got %s", result)
	}
	if r := w.expect(payment.RefundOpen, purchase.Refunding, 0); !r.Stuck || !r.ForOperator() || r.Failure == nil || r.DueAt == nil {
		t.Fatalf("it is not stuck: %+v", r)
	}
	return w
}

func waiting(w *world) (n int) {
	w.t.Helper()
	n, err := payment.CountRefundsForOperator(w.t.Context(), w.db)
	if err != nil {
		w.t.Fatal(err)
	}
	list, err := payment.RefundsWaitingForOperator(w.t.Context(), w.db, [16]byte{}, 10)
	if err != nil || len(list) != n {
		w.t.Errorf("%d wait, and listed are %v, %v", n, list, err)
	}
	return n
}

func TestAnOperatorSettlesARefundThatTheProviderRefusesToTellOf(t *testing.T) {
	t.Parallel()
	w := stuckWorld(t)
	if waiting(w) != 1 {
		t.Error("it does not wait for an operator")
	}
	servers.Exec(t, w.db, `UPDATE refunds SET reason = 'campaign-cancelled'`)
	r := w.refund()
	if counts, err := payment.CountCancelledRefunds(t.Context(), w.db, r.CampaignID); err != nil || counts.UnderWay != 0 || counts.ForPeople != 1 {
		t.Errorf("a cancelled campaign counts %+v, %v", counts, err)
	}
	done, err := service(w).Resolve(t.Context(), request(job.KindRefundResolve), access.Everything(), w.id, "operator:ops", "by bank transfer")
	if err != nil || done.Job.Problem != nil {
		t.Fatalf("%+v, %v", done.Job.Problem, err)
	}
	if r := w.expect(payment.RefundResolved, purchase.Refunded, 0); r.ForOperator() || waiting(w) != 0 {
		t.Errorf("it waits still: %+v", r)
	}
	w.run()
	if r := w.expect(payment.RefundResolved, purchase.Refunded, 0); len(w.provider.creates) != 1 || r.ForOperator() {
		t.Errorf("a worker goes on: %+v", r)
	}
}

// A worker that has it could make the refund still.
func TestAStuckRefundThatAWorkerHasIsNotSettled(t *testing.T) {
	t.Parallel()
	w := stuckWorld(t)
	servers.Exec(t, w.db, `UPDATE refunds SET lease_until = clock_timestamp() + interval '1 hour'`)
	done, err := service(w).Resolve(t.Context(), request(job.KindRefundResolve), access.Everything(), w.id, "operator:ops", "r")
	if err != nil || done.Job.Problem == nil || done.Job.Problem.Code != fault.StateConflict {
		t.Errorf("%+v, %v", done.Job.Problem, err)
	}
	tx, err := w.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	var b pgx.Batch
	refunds.QueueResolve(&b, w.id, "operator:ops", "r")
	if err := tx.SendBatch(t.Context(), &b).Close(); fault.CodeOf(err) != fault.StateConflict {
		t.Errorf("the write: %v", err)
	}
}

func TestAStuckRefundIsLookedAtAgainWhenAnOperatorAsks(t *testing.T) {
	t.Parallel()
	w := stuckWorld(t)
	w.provider.fault = nil
	done, err := service(w).Retry(t.Context(), request(job.KindRefundRetry), w.id, "operator:ops")
	if err != nil || done.Job.Problem != nil {
		t.Fatalf("%+v, %v", done.Job.Problem, err)
	}
	if due, err := payment.RefundAgenda.TakeDue(t.Context(), w.db, time.Hour, 10); err != nil || len(due) != 1 {
		t.Errorf("it is not due: %v, %v", due, err)
	}
	if result := w.run(); result != refunds.Finished {
		t.Errorf("got %s", result)
	}
	if r := w.expect(payment.RefundSucceeded, purchase.Refunded, 1); r.Stuck {
		t.Error("it is stuck still")
	}
	if key := w.provider.creates[1].Key; key != "re:"+w.id.String()+":1" {
		t.Errorf("the key is %s", key)
	}
}

// The provider being away is no reason to resolve: it passes.
func TestARefundThatOnlyWaitsForTheProviderIsNotForOperators(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.provider.fault = func(string) (error, bool) { return &payprovider.Error{Kind: payprovider.KindUnavailable}, true }
	w.run()
	w.run()
	if r := w.refund(); r.Stuck || waiting(w) != 0 {
		t.Errorf("it waits for an operator: %+v", r)
	}
	for name, do := range map[string]func() (job.Accepted, error){
		"resolve": func() (job.Accepted, error) {
			return service(w).Resolve(t.Context(), request(job.KindRefundResolve), access.Everything(), w.id, "operator:ops", "r")
		},
		"retry": func() (job.Accepted, error) {
			return service(w).Retry(t.Context(), request(job.KindRefundRetry), w.id, "operator:ops")
		},
	} {
		if done, err := do(); err != nil || done.Job.Problem == nil || done.Job.Problem.Code != fault.StateConflict {
			t.Errorf("%s: %+v, %v", name, done.Job.Problem, err)
		}
	}
}

// The bank has the money of a disputed charge: a refund beside it would pay twice.
func TestADisputedChargeIsNotRefundedAndWaitsForAnOperator(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	dispute := func(status string, refundable bool) {
		servers.Exec(t, w.db, `UPDATE payments SET disputed_at = clock_timestamp(), dispute = json_build_object('id', 'du_1', 'status', $1::text, 'reason', 'fraudulent', 'refundable', $2::boolean)`, status, refundable)
	}
	dispute("needs_response", false)
	again := func() refunds.Outcome {
		t.Helper()
		if done, err := service(w).Retry(t.Context(), request(job.KindRefundRetry), w.id, "operator:ops"); err != nil || done.Job.Problem != nil {
			t.Fatalf("%+v, %v", done.Job.Problem, err)
		}
		return w.run()
	}
	if result := w.run(); result != refunds.Refused {
		t.Errorf("got %s", result)
	}
	r := w.expect(payment.RefundFailed, purchase.Refunding, 0)
	if r.Failure == nil || *r.Failure != "disputed: the bank has the money, and decides (du_1, needs_response)" || len(w.provider.creates) != 0 {
		t.Errorf("%v, after %v", r.Failure, w.provider.creates)
	}
	dispute("won", true)
	w.run() // an event of the dispute wakes it
	if len(w.provider.creates) != 0 {
		t.Error("it was made without an operator")
	}
	dispute("needs_response", false)
	if result := again(); result != refunds.Refused || len(w.provider.creates) != 0 {
		t.Errorf("tried again: %s, %v", result, w.provider.creates)
	}
	dispute("won", true)
	if result := again(); result != refunds.Finished {
		t.Errorf("when it is won: %s", result)
	}
	w.expect(payment.RefundSucceeded, purchase.Refunded, 1)
}

// Only the buyer can end it, so it is no work for operators; and a campaign that ends does
// not wait for a buyer who may never come.
func TestARefundThatNeedsAnActionWaitsForItsBuyerAndNotForAnOperator(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.provider.status = payprovider.RefundRequiresAction
	w.run()
	w.sql(`UPDATE refunds SET reason = 'campaign-cancelled' WHERE id = $1`)
	r := w.expect(payment.RefundRequiresAction, purchase.Refunding, 1)
	if r.ForOperator() || waiting(w) != 0 {
		t.Errorf("it waits for an operator: %+v", r)
	}
	if counts, err := payment.CountCancelledRefunds(t.Context(), w.db, r.CampaignID); err != nil || counts.UnderWay != 0 || counts.ForPeople != 1 {
		t.Errorf("a cancelled campaign counts %+v, %v", counts, err)
	}
	for name, err := range map[string]error{
		"retry":   outcome(service(w).Retry(t.Context(), request(job.KindRefundRetry), w.id, "operator:ops")),
		"resolve": outcome(service(w).Resolve(t.Context(), request(job.KindRefundResolve), access.Everything(), w.id, "operator:ops", "r")),
	} {
		if fault.CodeOf(err) != fault.StateConflict || !strings.Contains(err.Error(), "whose waiting_for is operator") {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.sql(`UPDATE refunds SET stuck = true WHERE id = $1`)
	if r := w.refund(); !r.ForOperator() || waiting(w) != 1 {
		t.Errorf("the provider refuses to tell of it, and it waits for nobody: %+v", r)
	}
}
