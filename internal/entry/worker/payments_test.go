package worker

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/campaign"
	"triprize/internal/domain/access"
	"triprize/internal/domain/payprovider"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/job"
	"triprize/internal/lease"
	"triprize/internal/lifecycle"
	"triprize/internal/payment"
	"triprize/internal/payment/cards"
	"triprize/internal/platform/config"
	"triprize/internal/platform/queue"
	"triprize/internal/platform/stripe"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/provider"
	"triprize/internal/testkit/servers"
)

// closed returns a provider whose calls wait until open is called, and how many wait.
func closed() (bank *provider.Double, open func(), waiting *atomic.Int64) {
	bank, waiting = provider.New(), new(atomic.Int64)
	opened := make(chan struct{})
	bank.Hook(provider.Hook{Call: "any", Do: func(string) error {
		waiting.Add(1)
		<-opened
		return nil
	}})
	return bank, func() { close(opened) }, waiting
}

// withCards returns a worker that leads payments at a bank.
func withCards(t *testing.T, bank *provider.Double, change ...func(s *config.Settings)) *Worker {
	t.Helper()
	settings := workerSettings(t)
	settings.Payments.Stripe.Key, settings.Payments.Lease, settings.Payments.Stripe.Timeout = "sk_test_bank", time.Hour, servers.Patience
	for _, c := range change {
		c(&settings)
	}
	registry := prometheus.NewRegistry()
	w := newWorkerOn(t, settings, registry)
	own := settings
	own.Postgres.MaxConnections = 2
	bank.Provider = stripe.New(settings.Payments.Stripe, w.logger, prometheus.NewRegistry()) // reads events
	w.TakeCards(bank, servers.Pool(t, own), settings.Payments, registry)
	return w
}

// runs runs a worker until the test ends. It is in no outage, however long Postgres is silent.
func runs(t *testing.T, w *Worker) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx, func(context.Context) error { return nil }) }()
	stop = sync.OnceValue(func() error { cancel(); return <-ended })
	t.Cleanup(func() { _ = stop() })
	return stop
}

// buy accepts orders of one position each, and returns their jobs.
func buy(t *testing.T, w *Worker, campaignID uuid.UUID, method string, n int) (ids []uuid.UUID) {
	t.Helper()
	requests := make([]job.Request, n)
	for i := range requests {
		requests[i] = fixture.PurchaseRequest(t, campaignID, uuid.NewString(), 0, 1)
		if method != "" {
			requests[i] = fixture.PurchaseRequestOf(t, campaignID, sale.Order{UserID: uuid.NewString(), Selection: fixture.Random(0, 1),
				Payment: sale.Payment{Method: purchase.Card, PaymentMethod: method}})
		}
		ids = append(ids, requests[i].ID)
	}
	_, messages, err := job.Accept(t.Context(), w.db, requests)
	servers.NoError(t, err)
	w.dispatcher.Dispatch(job.Tasks(messages)...)
	return ids
}

func awaitState(t *testing.T, w *Worker, state job.State, ids ...uuid.UUID) {
	t.Helper()
	for _, id := range ids {
		servers.Eventually(t, "job "+id.String()+" is "+string(state), func() bool { return fixture.Job(t, w.db, id).State == state })
	}
}

func TestCardsArePaidAndSettledByTheWorkersThatTookTheirOrders(t *testing.T) {
	t.Parallel()
	w := withCards(t, provider.New())
	stop := runs(t, w)
	id := fixture.Campaign(t, w.db, fixture.Draft(4))
	jobs := buy(t, w, id, "pm_card_visa", 6)
	awaitState(t, w, job.Succeeded, jobs...)
	waiting := buy(t, w, id, "pm_action", 1)
	awaitState(t, w, job.AwaitingAction, waiting...)
	servers.NoError(t, stop())
	fixture.Sound(t, w.db)
}

func TestAProviderThatAnswersNobodyDelaysNoOtherPurchase(t *testing.T) {
	t.Parallel()
	bank, open, waiting := closed()
	w := withCards(t, bank, func(s *config.Settings) { s.Payments.Concurrency = 4 })
	runs(t, w)
	id := fixture.Campaign(t, w.db, fixture.Draft(5))
	cards := buy(t, w, id, "pm_card_visa", 8)
	servers.Eventually(t, "all slots of payments wait for the provider", func() bool { return waiting.Load() == 4 })
	awaitState(t, w, job.Succeeded, buy(t, w, id, "", 5)...)
	for _, card := range cards {
		if state := fixture.Job(t, w.db, card).State; state != job.Queued {
			t.Errorf("a card that nobody took is %s", state)
		}
	}
	open()
	awaitState(t, w, job.Succeeded, cards...)
	fixture.Sound(t, w.db)
}

func TestAPaymentWhoseCampaignIsLockedGivesItsSlotBack(t *testing.T) {
	t.Parallel()
	w := withCards(t, provider.New())
	id := fixture.Campaign(t, w.db, fixture.Draft(4))
	ref := reserved(t, w, id)
	unlock := fixture.LockCampaign(t, w.db, id)
	for range 2 {
		p := lead(t, w, ref)
		if p.Phase != payment.Captured || p.LeaseUntil != nil || p.DueAt == nil || time.Until(*p.DueAt) > settleRetry {
			t.Fatalf("the payment is %s, due at %v, leased until %v", p.Phase, p.DueAt, p.LeaseUntil)
		}
		ref = p.Ref()
	}
	unlock()
	lead(t, w, ref)
	if j := fixture.Job(t, w.db, ref.PurchaseID); j.State != job.Succeeded {
		t.Errorf("the job is %s", j.State)
	}
	fixture.Sound(t, w.db)
}

// reserved sells a position by card, and returns its payment, which nobody has yet.
func reserved(t *testing.T, w *Worker, campaignID uuid.UUID) payment.Ref {
	t.Helper()
	bought, _ := fixture.Reserve(t, w.db, campaignID, "buyer", 1, time.Hour)
	p := fixture.Payment(t, w.db, bought)
	return p.Ref()
}

// lead delivers a payment's task, which must not fail, and returns what the payment is then.
func lead(t *testing.T, w *Worker, ref payment.Ref) payment.Payment {
	t.Helper()
	servers.NoError(t, w.handlerOf(t, string(job.KindPayment))(t.Context(), ref.Item().Task(), false))
	return fixture.Payment(t, w.db, ref.PurchaseID)
}

func TestAWorkerThatShutsDownGivesItsPaymentsBack(t *testing.T) {
	t.Parallel()
	bank, open, waiting := closed()
	w := withCards(t, bank)
	stop := runs(t, w)
	id := fixture.Campaign(t, w.db, fixture.Draft(4))
	card := buy(t, w, id, "pm_card_visa", 1)[0]
	servers.Eventually(t, "the provider is called", func() bool { return waiting.Load() == 1 })
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	<-w.processor.Draining().Done()
	open()
	servers.NoError(t, <-ended)
	var phase payment.Phase
	var free bool
	err := w.db.QueryRow(t.Context(), `SELECT phase, lease_until IS NULL AND due_at <= clock_timestamp() FROM payments WHERE purchase_id = $1`, card).Scan(&phase, &free)
	if err != nil || phase != payment.Confirming || !free {
		t.Errorf("the payment is %s, given back: %t, %v", phase, free, err)
	}
	fixture.Sound(t, w.db)
}

func TestEventsWakePaymentsThroughTheQueue(t *testing.T) {
	t.Parallel()
	bank := provider.New()
	w := withCards(t, bank)
	runs(t, w)
	id := fixture.Campaign(t, w.db, fixture.Draft(4))
	card := buy(t, w, id, "pm_action", 1)[0]
	awaitState(t, w, job.AwaitingAction, card)
	purchase := card.String()
	bank.Move(purchase, payprovider.RequiresAction, payprovider.RequiresCapture)
	intents, _ := bank.Of(purchase)
	fresh, err := w.cards.events.Store(t.Context(), []payprovider.Event{{ID: "evt_1", Type: "payment_intent.amount_capturable_updated", IntentID: intents[0].ID, Status: "requires_capture"}})
	if err != nil || fresh != 1 {
		t.Fatal(fresh, err)
	}
	w.dispatcher.Dispatch(cards.EventsTask())
	awaitState(t, w, job.Succeeded, card)
	fixture.Sound(t, w.db)
}

func cancelCampaignMessage(t *testing.T, w *Worker, campaignID uuid.UUID) job.Message {
	t.Helper()
	payload, err := json.Marshal(lifecycle.CancelOrder{By: "operator:ops", Reason: "a test"})
	servers.NoError(t, err)
	id := uuidv7.New()
	_, messages, err := job.Accept(t.Context(), w.db, []job.Request{{ID: id, Client: "ops", Key: id.String(), Kind: job.KindCampaignCancellation,
		CampaignID: campaignID, Payload: payload, Retention: time.Hour}})
	if err != nil || len(messages) != 1 {
		t.Fatal(messages, err)
	}
	return messages[0]
}

// callOff delivers a job that cancels a campaign once more.
func callOff(t *testing.T, w *Worker, ref job.Ref) error {
	t.Helper()
	return w.handlerOf(t, string(job.KindCampaignCancellation))(t.Context(), job.Message{ID: uuidv7.New(), Kind: job.KindCampaignCancellation, Delivery: 1, Jobs: []job.Ref{ref}}.Task(), true)
}

// From the cancelled campaign to the money back, by tasks alone.
func TestAWorkerCallsACampaignOffAndMakesItsRefunds(t *testing.T) {
	t.Parallel()
	bank := provider.New()
	w := withCards(t, bank)
	stop := runs(t, w)
	id := fixture.Campaign(t, w.db, fixture.Draft(4))
	bought, _ := fixture.BuyByCard(t, w.db, id, "mina", 0, 2)
	bank.Put(payprovider.Intent{ID: *fixture.Payment(t, w.db, bought).IntentID, Received: 1_000_000})
	fixture.Buy(t, w.db, id, "otto", 0, 1)
	message := cancelCampaignMessage(t, w, id)
	ref := message.Jobs[0]
	w.dispatcher.Dispatch(message.Task())
	awaitState(t, w, job.Succeeded, ref.ID)
	expect(t, w.db, ref.ID, job.Succeeded, 1)
	servers.NoError(t, stop())
	if p, err := purchase.Get(t.Context(), w.db, access.Everything(), bought); err != nil || p.State != purchase.Refunded || len(bank.Refunds) != 1 {
		t.Errorf("the purchase is %s, and %d refunds were made: %v", p.State, len(bank.Refunds), err)
	}
	if c, err := campaign.Get(t.Context(), w.db, id); err != nil || c.State != campaign.Cancelled {
		t.Errorf("got %+v, %v", c, err)
	}
	fixture.Sound(t, w.db)
}

// A job that waits for money is put off: it holds no slot, and no attempt counts.
func TestACalledOffCampaignThatWaitsForMoneyIsPutOffAndNeverCounted(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	id := fixture.Campaign(t, w.db, fixture.Draft(4))
	fixture.BuyByCard(t, w.db, id, "mina", 0, 2)
	ref := cancelCampaignMessage(t, w, id).Jobs[0]
	for range 4 {
		if err := callOff(t, w, ref); !errors.Is(err, queue.ErrSnoozed) {
			t.Fatalf("got %v", err)
		}
	}
	expect(t, w.db, ref.ID, job.Queued, 1)
}

// What only an operator can end is not tried every second.
func TestACalledOffCampaignThatWaitsForABrokenWalletIsTriedSeldom(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	id := fixture.Campaign(t, w.db, fixture.Draft(4))
	mina := fixture.Wallet(t, w.db, "mina", 5000)
	fixture.Complete(t, w.db, fixture.WalletRequest(t, id, "mina", 2, 2))
	servers.Exec(t, w.db, `UPDATE wallets SET balance = balance + 1 WHERE id = $1`, mina)
	ref := cancelCampaignMessage(t, w, id).Jobs[0]
	run := func() error { return callOff(t, w, ref) }
	if err := run(); !errors.Is(err, queue.ErrSnoozed) {
		t.Fatal(err)
	}
	servers.Exec(t, w.db, `UPDATE campaigns SET cancelled_at = cancelled_at - interval '1 hour' WHERE id = $1`, id)
	sooner := queue.SnoozeFor(errors.New("sooner"), 4*time.Minute)
	if err := run(); !errors.Is(err, queue.ErrSnoozed) || !errors.Is(slices.MinFunc([]error{err, sooner}, queue.CompareSnoozes), sooner) {
		t.Errorf("it comes back too soon: %v", err)
	}
	servers.Exec(t, w.db, `UPDATE wallets SET balance = balance - 1 WHERE id = $1`, mina)
	servers.NoError(t, run())
	expect(t, w.db, ref.ID, job.Succeeded, 1)
}

// Its attempts are counted anew with every chunk, so that deaths in other chunks do not
// give it up.
func TestACalledOffCampaignThatAdvancesIsNotGivenUp(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	id := fixture.Campaign(t, w.db, fixture.Draft(4))
	fixture.Buy(t, w.db, id, "mina", 0, 2)
	ref := cancelCampaignMessage(t, w, id).Jobs[0]
	deliveredBefore(t, w, job.MaxDeliveries-1, ref.ID)
	servers.NoError(t, callOff(t, w, ref))
	expect(t, w.db, ref.ID, job.Succeeded, 1)
}

func TestATaskOfAnItemThatFailsIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	w := withCards(t, provider.New(), func(s *config.Settings) { s.Payments.Concurrency = 1 })
	ended, end := context.WithCancel(t.Context())
	end()
	for _, kind := range []job.Kind{job.KindPayment, job.KindRefund} {
		handle := w.handlerOf(t, string(kind))
		for _, payload := range []string{"", "[]", "{}", `{"id":"` + uuid.NewString() + `"}`} {
			if err := handle(t.Context(), queue.Task{ID: uuid.New(), Kind: string(kind), Payload: []byte(payload)}, false); err != nil {
				t.Errorf("%s %q: %v", kind, payload, err)
			}
		}
		if err := handle(ended, lease.Item{ID: uuid.New(), Kind: string(kind)}.Task(), false); err != nil { // the database does not answer
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// From the lost dispute to the free positions, by tasks alone.
func TestAWorkerReleasesWhatALostDisputeHasTaken(t *testing.T) {
	t.Parallel()
	bank := provider.New()
	w := withCards(t, bank)
	stop := runs(t, w)
	draft := fixture.Draft(4)
	draft.Policies.Disputes = campaign.DisputesRelease
	id := fixture.Campaign(t, w.db, draft)
	bought, _ := fixture.BuyByCard(t, w.db, id, "mina", 2, 2) // 400 JPY
	bank.Disputes = []payprovider.Dispute{{ID: "du_1", Status: "lost", Reason: "fraudulent", Lost: true, Disputed: payprovider.Disputed{Amount: 400, Currency: "JPY"}}}
	intent := *fixture.Payment(t, w.db, bought).IntentID
	_, err := w.cards.events.Store(t.Context(), []payprovider.Event{{ID: "evt_1", Type: "charge.dispute.closed", ObjectID: "du_1", IntentID: intent, Status: "lost"}})
	servers.NoError(t, err)
	w.dispatcher.Dispatch(cards.EventsTask())
	servers.Eventually(t, "the purchase is cancelled", func() bool {
		p, err := purchase.Get(t.Context(), w.db, access.Everything(), bought)
		return err == nil && p.State == purchase.Cancelled
	})
	servers.NoError(t, stop())
	if c, err := campaign.Get(t.Context(), w.db, id); err != nil || c.Counts.Sold != 0 || len(bank.Refunds) != 0 {
		t.Errorf("%+v, %d refunds, %v", c.Counts, len(bank.Refunds), err)
	}
	fixture.Sound(t, w.db)
}
