package refunds_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/payprovider"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/payment/refunds"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
	"triprize/internal/testkit/fixture"
)

func request(kind job.Kind) job.Request {
	id := uuidv7.New()
	return job.Request{ID: id, Client: "test", Key: id.String(), Kind: kind, Keep: time.Hour, HTTPStatus: 200}
}

func service(w *world) *refunds.Service {
	return refunds.NewService(w.db, func(r payment.Refund) any {
		return map[string]any{"id": r.ID, "state": r.State}
	})
}

// refusedWorld is a world whose refund the provider has refused.
func refusedWorld(t *testing.T, status payprovider.RefundStatus) *world {
	t.Helper()
	w := newWorld(t)
	w.provider.status, w.provider.failure = status, "expired_or_canceled_card"
	w.run()
	return w
}

func TestARefusedRefundIsTriedAgainWithAKeyOfItsOwn(t *testing.T) {
	t.Parallel()
	for _, status := range []payprovider.RefundStatus{payprovider.RefundFailed, payprovider.RefundCanceled} {
		w := refusedWorld(t, status)
		w.provider.status = payprovider.RefundSucceeded
		r := request(job.KindRefundRetry)
		for range 2 { // the second is the same request again
			done, err := service(w).Retry(t.Context(), r, w.id, "operator:ops")
			var body map[string]string
			if err != nil || done.Job.State != job.Succeeded || json.Unmarshal(done.Job.Result, &body) != nil || body["state"] != "open" {
				t.Fatalf("%+v, %v", done, err)
			}
		}
		w.expect(payment.RefundOpen, purchase.Refunding, 1)
		if due, err := payment.RefundAgenda.TakeDue(t.Context(), w.db, time.Hour, 10); err != nil || len(due) != 1 {
			t.Errorf("it is not due: %v, %v", due, err)
		}
		if result := w.run(); result != refunds.Finished {
			t.Errorf("got %s", result)
		}
		w.expect(payment.RefundSucceeded, purchase.Refunded, 2) // the first has failed
		if key := w.provider.creates[1].Key; key != "re:"+w.id.String()+":2" {
			t.Errorf("the key is %s", key)
		}
	}
}

// An operator may try again what somebody has repaired at the provider in the meantime.
func TestARetryFindsWhatSucceededInTheMeantime(t *testing.T) {
	t.Parallel()
	w := refusedWorld(t, payprovider.RefundFailed)
	w.provider.add(w.provider.captured, payprovider.RefundSucceeded, nil)
	if _, err := service(w).Retry(t.Context(), request(job.KindRefundRetry), w.id, "operator:ops"); err != nil {
		t.Fatal(err)
	}
	w.run()
	if r := w.expect(payment.RefundSucceeded, purchase.Refunded, 2); len(w.provider.creates) != 1 || r.Amount != 0 {
		t.Errorf("made again: %+v, %+v", r, w.provider.creates)
	}
}

func TestARetryFencesTheWorkerThatStillHasTheRefund(t *testing.T) {
	t.Parallel()
	w := refusedWorld(t, payprovider.RefundFailed)
	w.provider.fault = func(call string) (error, bool) {
		if call == "list" { // of the worker that an event has woken
			w.provider.fault = nil
			if _, err := service(w).Retry(t.Context(), request(job.KindRefundRetry), w.id, "operator:ops"); err != nil {
				t.Error(err)
			}
		}
		return nil, false
	}
	if result := w.run(); result != refunds.Nothing {
		t.Errorf("got %s", result)
	}
	w.expect(payment.RefundOpen, purchase.Refunding, 1)
}

func TestAnOperatorSettlesByHandWhatTheProviderHasRefused(t *testing.T) {
	t.Parallel()
	w := refusedWorld(t, payprovider.RefundFailed)
	done, err := service(w).Resolve(t.Context(), request(job.KindRefundResolve), access.Everything(), w.id, "operator:ops", "paid by bank transfer")
	if err != nil || done.Job.State != job.Succeeded {
		t.Fatalf("%+v, %v", done, err)
	}
	r := w.expect(payment.RefundResolved, purchase.Refunded, 1)
	if r.ResolvedBy == nil || *r.ResolvedBy != "operator:ops" || r.ResolveReason == nil || *r.ResolveReason != "paid by bank transfer" || r.FinishedAt == nil {
		t.Errorf("got %+v", r)
	}
	if events := w.events(); events[len(events)-1] != payment.StepRefundResolved {
		t.Errorf("the timeline has %v", events)
	}
	if result := w.run(); result != refunds.Finished { // news of it at the provider: nothing of it gives money back
		t.Errorf("got %s", result)
	}
	if r := w.expect(payment.RefundResolved, purchase.Refunded, 1); r.FinishedAt == nil || r.DueAt != nil || len(w.provider.creates) != 1 {
		t.Errorf("what was resolved is worked on: %+v", r)
	}
	fixture.Sound(t, w.db)
}

// Each state and method, by whom: only an app resolves what is listed for it, only an
// operator what the provider has refused, and nothing else is retried or resolved.
func TestOnlyWhatWaitsForAPersonIsRetriedOrSettledAndByTheRightOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	external := otherRefund(t, w, payment.RefundExternal)
	wallet := otherRefund(t, w, payment.RefundToWallet)
	s := service(w)
	retry := func(id uuid.UUID) error {
		return outcome(s.Retry(t.Context(), request(job.KindRefundRetry), id, "operator:ops"))
	}
	resolve := func(id uuid.UUID, asApp bool) error {
		return outcome(s.Resolve(t.Context(), request(job.KindRefundResolve), grantOf(asApp), id, "somebody", "why"))
	}
	check := func(what string, err error, want fault.Code) {
		t.Helper()
		if fault.CodeOf(err) != want {
			t.Errorf("%s: %v", what, err)
		}
	}
	check("retry of an unknown one", retry(uuid.New()), fault.NotFound)
	check("resolve of an unknown one", resolve(uuid.New(), true), fault.NotFound)
	check("retry of an external one", retry(external), fault.StateConflict)
	check("retry of a wallet's", retry(wallet), fault.StateConflict)
	check("resolve of a wallet's", resolve(wallet, true), fault.StateConflict)
	check("an operator resolves an external one", resolve(external, false), fault.Forbidden)
	check("an app resolves a card's", resolve(w.id, true), fault.Forbidden)
	for _, state := range []string{"open", "pending", "requires_action", "succeeded"} {
		finished := "NULL"
		if state == "succeeded" {
			finished = "clock_timestamp()"
		}
		w.sql(`UPDATE refunds SET state = '` + state + `', finished_at = ` + finished + ` WHERE id = $1`)
		check("retry while "+state, retry(w.id), fault.StateConflict)
		check("resolve while "+state, resolve(w.id, false), fault.StateConflict)
	}
	check("the app resolves an external one", resolve(external, true), "")
	check("and again", resolve(external, true), fault.StateConflict)
	if r, err := payment.GetRefund(t.Context(), w.db, access.Everything(), external); err != nil || r.State != payment.RefundResolved {
		t.Errorf("got %+v, %v", r, err)
	}
}

// outcome is the error or the recorded refusal of a command.
func outcome(done job.Accepted, err error) error {
	if err == nil && done.Job.Problem != nil {
		return done.Job.Problem.Err()
	}
	return err
}

// otherRefund stores a refund of a purchase that was not paid by card.
func otherRefund(t *testing.T, w *world, method payment.RefundMethod) uuid.UUID {
	t.Helper()
	id, bought := uuidv7.New(), fixture.Buy(t, w.db, fixture.Campaign(t, w.db, fixture.Draft(3)), "otto", 0, 1)
	err := postgres.InTx(t.Context(), w.db, func(tx pgx.Tx) error {
		var b pgx.Batch
		payment.QueueInsertRefunds(&b, []payment.Refund{{ID: id, PurchaseID: bought, CampaignID: w.refund().CampaignID, UserID: "otto", Method: method,
			Amount: 100, Currency: "JPY", Reason: payment.RefundCampaignCancelled}})
		b.Queue(`UPDATE refunds SET client = 'test' WHERE id = $1`, id) // there is no purchase that says so
		return tx.SendBatch(t.Context(), &b).Close()
	})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// grantOf is what the app of the tests sees, or an operator.
func grantOf(asApp bool) access.Grant {
	if asApp {
		return access.OfClient("test")
	}
	return access.Everything()
}
