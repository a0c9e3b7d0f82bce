package refunds_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/campaign"
	"triprize/internal/domain/access"
	"triprize/internal/domain/payprovider"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/inventory"
	"triprize/internal/lease"
	"triprize/internal/payment"
	"triprize/internal/payment/refunds"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

// world is a purchase that is to be refunded, and the provider that has its money.
type world struct {
	t        *testing.T
	db       *pgxpool.Pool
	runner   *refunds.Runner
	provider *provider
	id       uuid.UUID // of the refund
	bought   uuid.UUID
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return worldOn(t, servers.DB(t))
}

func worldOn(t *testing.T, db *pgxpool.Pool) *world {
	t.Helper()
	campaignID := fixture.Campaign(t, db, fixture.Draft(3))
	w := &world{t: t, db: db, id: uuidv7.New()}
	w.bought, _ = fixture.BuyByCard(t, db, campaignID, "mina", 2, 2)
	p, err := purchase.Get(t.Context(), db, access.Everything(), w.bought)
	if err != nil {
		t.Fatal(err)
	}
	giveBack(t, db, p, w.id)
	w.provider = newProvider(*fixture.Payment(t, db, w.bought).IntentID, p.Amount)
	w.runner = w.newRunner()
	return w
}

func (w *world) newRunner() *refunds.Runner {
	return refunds.NewRunner(w.db, w.provider, refunds.Settings{Lease: time.Hour, Recheck: time.Minute}, servers.Logger(w.t), prometheus.NewRegistry())
}

// giveBack takes a card purchase back, as a cancellation does.
func giveBack(t *testing.T, db *pgxpool.Pool, p purchase.Purchase, id uuid.UUID) {
	t.Helper()
	err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
		var b pgx.Batch
		payment.QueueInsertRefunds(&b, []payment.Refund{{ID: id, PurchaseID: p.ID, CampaignID: p.CampaignID, UserID: p.UserID, Method: payment.RefundToCard,
			Amount: p.Amount, Currency: p.Currency, Reason: payment.RefundPurchaseCancelled}})
		campaign.Changes{p.CampaignID: {Sold: -len(p.Items)}}.QueueBack(&b)
		inventory.QueueFreeSold(&b, []inventory.Owned{{CampaignID: p.CampaignID, PurchaseID: p.ID, Items: p.Items}})
		purchase.QueueCancel(&b, []purchase.End{{ID: p.ID, State: purchase.Refunding, By: "app:test"}})
		return tx.SendBatch(t.Context(), &b).Close()
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) refund() payment.Refund {
	w.t.Helper()
	r, err := payment.GetRefund(w.t.Context(), w.db, access.Everything(), w.id)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// item is the refund as it is now.
func (w *world) item() lease.Item {
	w.t.Helper()
	r := w.refund()
	return r.Item()
}

// run runs the refund as it is now.
func (w *world) run() refunds.Outcome {
	w.t.Helper()
	result, err := w.runner.Run(w.t.Context(), w.item())
	if err != nil {
		w.t.Fatal(err)
	}
	return result
}

// expect checks the states of the refund and its purchase, and how much money the
// provider has given back.
func (w *world) expect(state payment.RefundState, bought purchase.State, refundsThere int) payment.Refund {
	w.t.Helper()
	r := w.refund()
	p, err := purchase.Get(w.t.Context(), w.db, access.Everything(), w.bought)
	if err != nil || r.State != state || p.State != bought || len(w.provider.refunds) != refundsThere || w.provider.returned() > w.provider.captured {
		w.t.Errorf("the refund is %s, the purchase %s, and there are %d refunds over %d; wanted %s, %s, %d: %v",
			r.State, p.State, len(w.provider.refunds), w.provider.returned(), state, bought, refundsThere, err)
	}
	return r
}

// sql changes what the passing of time would change.
func (w *world) sql(statement string) {
	w.t.Helper()
	servers.Exec(w.t, w.db, statement, w.id)
}

// events returns the steps of the refund.
func (w *world) events() (events []string) {
	w.t.Helper()
	steps, err := payment.StepsOf(w.t.Context(), w.db, []uuid.UUID{w.bought})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, s := range steps {
		if strings.HasPrefix(s.Event, "refund") {
			events = append(events, s.Event)
		}
	}
	return events
}

func TestARefundIsMadeOnceAndRefundsItsPurchase(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stale := w.refund()
	if result := w.run(); result != refunds.Finished {
		t.Errorf("got %s", result)
	}
	r := w.expect(payment.RefundSucceeded, purchase.Refunded, 1)
	if r.FinishedAt == nil || r.DueAt != nil || r.LeaseUntil != nil || r.ProviderID == nil || *r.ProviderID != w.provider.refunds[0].ID {
		t.Errorf("got %+v", r)
	}
	n := w.provider.creates[0]
	if n.Key != "re:"+w.id.String()+":1" || n.IntentID != w.provider.intent || n.Amount != 400 || n.Metadata["refund_id"] != w.id.String() ||
		n.Metadata["purchase_id"] != w.bought.String() || n.Metadata["campaign_id"] != r.CampaignID.String() {
		t.Errorf("asked for %+v", n)
	}
	if result, err := w.runner.Run(t.Context(), stale.Item()); err != nil || result != refunds.Nothing { // the task again
		t.Errorf("the same task again: %s, %v", result, err)
	}
	w.run() // woken: it is looked for
	if got := strings.Join(w.provider.calls, " "); got != "create list" {
		t.Errorf("called %s", got)
	}
	if got := w.events(); len(got) != 1 || got[0] != payment.StepRefunded {
		t.Errorf("the timeline has %v", got)
	}
	fixture.Sound(t, w.db)
}

// The provider may take days, and the end may be any.
func TestAPendingRefundIsFetchedUntilItsEnd(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		end    payprovider.RefundStatus
		result refunds.Outcome
		state  payment.RefundState
		bought purchase.State
		step   string
	}{
		{payprovider.RefundSucceeded, refunds.Finished, payment.RefundSucceeded, purchase.Refunded, payment.StepRefunded},
		{payprovider.RefundFailed, refunds.Refused, payment.RefundFailed, purchase.Refunding, payment.StepRefundFailed},
		{payprovider.RefundCanceled, refunds.Refused, payment.RefundCanceled, purchase.Refunding, payment.StepRefundFailed},
		{payprovider.RefundRequiresAction, refunds.Waits, payment.RefundRequiresAction, purchase.Refunding, payment.StepRefundAction},
	} {
		w := newWorld(t)
		w.provider.status = payprovider.RefundPending
		if result := w.run(); result != refunds.Waits {
			t.Errorf("pending: %s", result)
		}
		r := w.expect(payment.RefundPending, purchase.Refunding, 1)
		if r.DueAt == nil || r.LeaseUntil != nil {
			t.Errorf("nobody will look at it again: %+v", r)
		}
		w.run() // nothing new
		w.provider.set(c.end, "lost_or_stolen_card")
		if result := w.run(); result != c.result {
			t.Errorf("%s: %s", c.end, result)
		}
		r = w.expect(c.state, c.bought, 1)
		if waits := c.result == refunds.Waits; (r.DueAt != nil) != waits {
			t.Errorf("%s is due at %v", c.end, r.DueAt)
		}
		if refused := c.result == refunds.Refused; refused != (r.Failure != nil) || refused && *r.Failure != "lost_or_stolen_card" {
			t.Errorf("%s: the failure is %v", c.end, r.Failure)
		}
		if got := strings.Join(w.events(), " "); got != payment.StepRefundPending+" "+c.step {
			t.Errorf("the timeline has %s", got)
		}
		if got := strings.Join(w.provider.calls, " "); got != "create list list" {
			t.Errorf("called %s", got)
		}
	}
}

// A bank may send the money back after days.
func TestARefundThatFailsAfterItSucceededWaitsForAnOperator(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	w.expect(payment.RefundSucceeded, purchase.Refunded, 1)
	w.provider.set(payprovider.RefundFailed, "declined")
	woken, err := payment.WakeRefunds(t.Context(), w.db, nil, []string{w.provider.refunds[0].ID})
	if err != nil || len(woken) != 1 {
		t.Fatalf("woken: %v, %v", woken, err)
	}
	if result, err := w.runner.Run(t.Context(), w.item()); err != nil || result != refunds.Refused {
		t.Errorf("got %s, %v", result, err)
	}
	r := w.expect(payment.RefundFailed, purchase.Refunding, 1)
	if r.FinishedAt != nil || r.Failure == nil || *r.Failure != "declined" {
		t.Errorf("got %+v", r)
	}
	fixture.Sound(t, w.db)
}

// The answer is lost, before or after the refund was made: it is looked for first.
func TestALostAnswerNeverRefundsTwice(t *testing.T) {
	t.Parallel()
	for _, before := range []bool{true, false} {
		w := newWorld(t)
		w.provider.fault = once("create", 1, errLost, before)
		if result := w.run(); result != refunds.Waits {
			t.Errorf("got %s", result)
		}
		if r := w.refund(); r.State != payment.RefundOpen || r.Faults != 1 || r.DueAt == nil || r.LeaseUntil != nil {
			t.Errorf("after the fault: %+v", r)
		}
		w.sql(`UPDATE refunds SET attempt_at = attempt_at - interval '25 hours' WHERE id = $1`) // the provider has forgotten the key
		clear(w.provider.keys)
		w.run()
		w.expect(payment.RefundSucceeded, purchase.Refunded, 1)
		want := map[bool]string{true: "create list create", false: "create list"}[before]
		if got := strings.Join(w.provider.calls, " "); got != want {
			t.Errorf("called %s", got)
		}
	}
}

func TestAKeyIsUsedAgainForADayAtMost(t *testing.T) {
	t.Parallel()
	for age, attempt := range map[string]string{"22 hours": "1", "23 hours": "2"} {
		w := newWorld(t)
		w.provider.fault = once("create", 1, errLost, true)
		w.run()
		w.sql(`UPDATE refunds SET attempt_at = attempt_at - interval '` + age + `' WHERE id = $1`)
		w.run()
		if key := w.provider.creates[1].Key; key != "re:"+w.id.String()+":"+attempt || w.provider.creates[1].Metadata["attempt"] != attempt {
			t.Errorf("after %s: %s", age, key)
		}
	}
}

// A failure that the provider has stored under the key would be repeated for a day.
func TestAKeyThatFailsAgainAndAgainIsReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := "re:" + w.id.String() + ":1"
	w.provider.keys[first] = answer{err: errLost}
	for range 3 {
		w.run()
	}
	w.expect(payment.RefundOpen, purchase.Refunding, 0)
	w.run()
	w.expect(payment.RefundSucceeded, purchase.Refunded, 1)
	if key := w.provider.creates[3].Key; key != "re:"+w.id.String()+":2" {
		t.Errorf("the fourth key is %s", key)
	}
}

// An answer must be what was asked for; else nothing is believed.
func TestARefundOfAnotherAmountCurrencyOrIntentChangesNoState(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*payprovider.Refund){
		"amount":   func(r *payprovider.Refund) { r.Amount-- },
		"currency": func(r *payprovider.Refund) { r.Currency = "USD" },
		"intent":   func(r *payprovider.Refund) { r.IntentID = "pi_other" },
		"status":   func(r *payprovider.Refund) { r.Status = "lost" },
	} {
		w := newWorld(t)
		w.provider.status = payprovider.RefundPending
		w.run()
		good := w.provider.refunds[0]
		w.provider.set(payprovider.RefundSucceeded, "")
		spoil(&w.provider.refunds[0])
		if result := w.run(); result != refunds.Waits {
			t.Errorf("%s: %s", name, result)
		}
		r := w.expect(payment.RefundPending, purchase.Refunding, 1)
		if r.DueAt == nil || time.Until(*r.DueAt) < 30*time.Minute {
			t.Errorf("%s: it is due at %v", name, r.DueAt)
		}
		w.provider.refunds[0] = good
		w.provider.set(payprovider.RefundSucceeded, "")
		w.run()
		w.expect(payment.RefundSucceeded, purchase.Refunded, 1)
	}
}

func TestWhileTheProviderIsAwayARefundWaitsLongerAndLonger(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	away := &payprovider.Error{Kind: payprovider.KindUnavailable, Call: "refund"}
	w.provider.fault = func(string) (error, bool) { return away, true }
	var waits []time.Duration
	for range 9 {
		before := time.Now()
		if result := w.run(); result != refunds.Waits {
			t.Fatalf("got %s", result)
		}
		waits = append(waits, w.refund().DueAt.Sub(before).Truncate(time.Second)) // the clock of the database is ours
	}
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60, 60} {
		if waits[i] < want*time.Second {
			t.Errorf("after %d faults it waits %s", i+1, waits[i])
		}
	}
	away.RetryAt = time.Now().Add(2 * time.Hour)
	w.run()
	if due := w.refund().DueAt; due.Before(away.RetryAt.Add(-time.Second)) {
		t.Errorf("due at %s, before the provider wants it", due)
	}
	w.provider.fault = nil
	w.run()
	w.expect(payment.RefundSucceeded, purchase.Refunded, 1)
}

// A worker that was stopped between its claim and its call comes back after its lease.
func TestAStoppedWorkerNeverRefundsTwice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.provider.fault = func(call string) (error, bool) {
		if call == "create" && len(w.provider.creates) == 1 { // the first worker stops in its call; another goes on
			w.provider.mu.Unlock()
			w.sql(`UPDATE refunds SET lease_until = clock_timestamp() WHERE id = $1`)
			if result := w.run(); result != refunds.Finished {
				t.Errorf("the second worker: %s", result)
			}
			w.provider.mu.Lock()
		}
		return nil, false
	}
	if result := w.run(); result != refunds.Nothing {
		t.Errorf("the stopped worker: %s", result)
	}
	w.expect(payment.RefundSucceeded, purchase.Refunded, 1)
	if n := len(w.provider.creates); n != 2 || w.provider.creates[0].Key != w.provider.creates[1].Key {
		t.Errorf("asked for %+v", w.provider.creates)
	}
	fixture.Sound(t, w.db)
}

func TestAnEventDuringARunIsNotForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.provider.fault = func(string) (error, bool) {
		if _, err := payment.WakeRefunds(t.Context(), w.db, []uuid.UUID{w.bought}, nil); err != nil {
			t.Error(err)
		}
		return nil, false
	}
	w.run()
	if r := w.expect(payment.RefundSucceeded, purchase.Refunded, 1); r.DueAt == nil || r.DueAt.After(time.Now().Add(time.Minute)) {
		t.Errorf("it is due at %v", r.DueAt)
	}
}

func TestDueRefundsBecomeTasksForOneWorkerEach(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	a, b := worldOn(t, db), worldOn(t, db)
	due, err := payment.RefundAgenda.TakeDue(t.Context(), db, time.Hour, 10)
	if err != nil || len(due) != 2 {
		t.Fatalf("%d are due, %v", len(due), err)
	}
	if again, err := payment.RefundAgenda.TakeDue(t.Context(), db, time.Hour, 10); err != nil || len(again) != 0 {
		t.Errorf("taken twice: %v, %v", again, err)
	}
	for _, one := range due {
		item, err := lease.ItemOf(one.Task())
		if err != nil || item != one {
			t.Fatalf("the task of %v is of %v, %v", one, item, err)
		}
		w := a
		if item.ID == b.id {
			w = b
		}
		if result, err := w.runner.Run(t.Context(), item); err != nil || result != refunds.Finished {
			t.Errorf("%s, %v", result, err)
		}
	}
	a.expect(payment.RefundSucceeded, purchase.Refunded, 1)
	b.expect(payment.RefundSucceeded, purchase.Refunded, 1)
}
