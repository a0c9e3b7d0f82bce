package worker

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
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
	"triprize/internal/platform/queue"
	"triprize/internal/platform/stripe"
	"triprize/internal/purchase"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// generous gives every refund that it is asked for, once.
type generous struct {
	payprovider.Provider
	mu    sync.Mutex
	given map[string]payprovider.Refund // by key
}

func (g *generous) CreateRefund(_ context.Context, n payprovider.NewRefund) (payprovider.Refund, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.given[n.Key]; !ok {
		g.given[n.Key] = payprovider.Refund{ID: "re_" + n.Key, IntentID: n.IntentID, Status: payprovider.RefundSucceeded, Amount: n.Amount, Currency: "JPY", Metadata: n.Metadata}
	}
	return g.given[n.Key], nil
}

func (g *generous) Refund(context.Context, string) (payprovider.Refund, error) {
	return payprovider.Refund{}, errors.New("nobody asks")
}

func (g *generous) RefundsOf(context.Context, string) ([]payprovider.Refund, error) { return nil, nil }

func cancelCampaignMessage(t *testing.T, w *Worker, campaignID uuid.UUID) job.Message {
	t.Helper()
	payload, err := json.Marshal(lifecycle.CancelOrder{By: "operator:ops", Reason: "a test"})
	if err != nil {
		t.Fatal(err)
	}
	id := uuidv7.New()
	_, messages, err := job.Accept(t.Context(), w.db, []job.Request{{ID: id, Client: "ops", Key: id.String(), Kind: job.KindCampaignCancellation,
		CampaignID: campaignID, Payload: payload, Keep: time.Hour}})
	if err != nil || len(messages) != 1 {
		t.Fatal(messages, err)
	}
	return messages[0]
}

// From the cancelled campaign to the money back, by tasks alone.
func TestAWorkerCallsACampaignOffAndMakesItsRefunds(t *testing.T) {
	t.Parallel()
	settings := workerSettings(t)
	rdb := servers.Redis(t, settings)
	w := newWorkerWith(t, settings)
	provider := &generous{given: make(map[string]payprovider.Refund)}
	w.TakeCards(Cards{Provider: provider, Events: stripe.NewReader(false), DB: servers.Pool(t, settings)}, settings.Payments, prometheus.NewRegistry())
	ctx, end := context.WithCancel(t.Context())
	running := make(chan error, 1)
	go func() { running <- w.Run(ctx) }()
	id := fixture.Campaign(t, w.db, fixture.Draft(4))
	bought, _ := fixture.BuyByCard(t, w.db, id, "mina", 0, 2)
	fixture.Buy(t, w.db, id, "otto", 0, 1)
	message := cancelCampaignMessage(t, w, id)
	ref := message.Jobs[0]
	if err := queue.NewClient(rdb, settings.Redis.Namespace).Enqueue(t.Context(), message.Task()); err != nil {
		t.Fatal(err)
	}
	servers.Eventually(t, "the job is final", func() bool { return fixture.Job(t, w.db, ref.ID).State.Final() })
	if j := fixture.Job(t, w.db, ref.ID); j.State != job.Succeeded || j.Attempts != 1 {
		t.Errorf("the job is %s after %d attempts: %+v", j.State, j.Attempts, j.Problem)
	}
	if p, err := purchase.Get(t.Context(), w.db, access.Everything(), bought); err != nil || p.State != purchase.Refunded || len(provider.given) != 1 {
		t.Errorf("the purchase is %s, and %d refunds were made: %v", p.State, len(provider.given), err)
	}
	if c, err := campaign.Get(t.Context(), w.db, id); err != nil || c.State != campaign.Cancelled {
		t.Errorf("got %+v, %v", c, err)
	}
	fixture.Sound(t, w.db)
	end()
	if err := <-running; err != nil {
		t.Error(err)
	}
}

// A job that waits for money is put off: it holds no slot, and no attempt counts.
func TestACalledOffCampaignThatWaitsForMoneyIsPutOffAndNeverCounted(t *testing.T) {
	t.Parallel()
	w := newWorker(t)
	id := fixture.Campaign(t, w.db, fixture.Draft(4))
	fixture.BuyByCard(t, w.db, id, "mina", 0, 2)
	ref := cancelCampaignMessage(t, w, id).Jobs[0]
	for range 4 {
		if err := w.serially(job.KindCampaignCancellation, w.cancelCampaign)(t.Context(), []job.Ref{ref}, true); !errors.Is(err, queue.ErrSnoozed) {
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
	fixture.Finalize(t, w.db, fixture.WalletRequest(t, id, "mina", 2, 2))
	servers.Exec(t, w.db, `UPDATE wallets SET balance = balance + 1 WHERE id = $1`, mina)
	ref := cancelCampaignMessage(t, w, id).Jobs[0]
	run := func() error {
		return w.serially(job.KindCampaignCancellation, w.cancelCampaign)(t.Context(), []job.Ref{ref}, true)
	}
	if err := run(); !errors.Is(err, queue.ErrSnoozed) {
		t.Fatal(err)
	}
	servers.Exec(t, w.db, `UPDATE campaigns SET cancelled_at = cancelled_at - interval '1 hour' WHERE id = $1`, id)
	sooner := queue.SnoozeFor(errors.New("sooner"), 4*time.Minute)
	if err := run(); !errors.Is(err, queue.ErrSnoozed) || !errors.Is(queue.EarlierSnooze(err, sooner), sooner) {
		t.Errorf("it comes back too soon: %v", err)
	}
	servers.Exec(t, w.db, `UPDATE wallets SET balance = balance - 1 WHERE id = $1`, mina)
	if err := run(); err != nil {
		t.Error(err)
	}
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
	deliveredBefore(t, w, w.settings.MaxDeliveries-1, ref.ID)
	if err := w.serially(job.KindCampaignCancellation, w.cancelCampaign)(t.Context(), []job.Ref{ref}, true); err != nil {
		t.Fatal(err)
	}
	if j := fixture.Job(t, w.db, ref.ID); j.State != job.Succeeded || j.Attempts != 1 {
		t.Errorf("it is %s after %d attempts", j.State, j.Attempts)
	}
}

func TestATaskOfAnItemThatFailsIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	w := withCards(t, newBank())
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
