package webhook_test

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/campaign"
	"triprize/internal/domain/shape"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/job"
	"triprize/internal/lifecycle"
	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
	"triprize/internal/sale"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// implied are the events that the tables imply, and told those that were written. No table says later
// what has come and gone: the test notes it in happened.
const (
	implied = `
		SELECT 'purchase.completed' AS type, id AS subject, NULL::bigint AS version FROM purchases WHERE completed_at IS NOT NULL
		UNION ALL SELECT 'purchase.failed', id, NULL FROM purchases WHERE failure IS NOT NULL
		UNION ALL SELECT 'purchase.cancelled', id, NULL FROM purchases WHERE cancelled_at IS NOT NULL
		UNION ALL SELECT 'purchase.partially_cancelled', id, NULL FROM purchases, jsonb_array_elements(partial_cancellations)
		UNION ALL SELECT 'purchase.refunded', id, NULL FROM purchases WHERE state = 'refunded'
		UNION ALL SELECT 'hold.created', id, NULL FROM holds
		UNION ALL SELECT 'hold.' || state, id, NULL FROM holds WHERE state <> 'active'
		UNION ALL SELECT 'campaign.sold_out', id, NULL FROM campaigns WHERE state IN ('drawing', 'completed') AND positions_sold = positions_total
		UNION ALL SELECT 'campaign.drawing', id, NULL FROM campaigns WHERE draw_started_at IS NOT NULL
		UNION ALL SELECT 'campaign.drawn', id, NULL FROM campaigns WHERE state = 'completed'
		UNION ALL SELECT 'campaign.cancelled', id, NULL FROM campaigns WHERE state = 'cancelled'
		UNION ALL SELECT 'job.failed', id, NULL FROM jobs WHERE state = 'failed' AND kind IN ('purchase', 'cancellation', 'draw', 'campaign-cancellation')
		UNION ALL SELECT type, subject, NULL FROM happened
		UNION ALL SELECT 'wallet.' || e.kind, v.wallet_id, v.version FROM wallet_events v JOIN ledger_entries e ON e.id = v.entry_id`
	told = `SELECT type, subject, version FROM webhook_events`
)

// wantTold checks that exactly the implied events are told, each once and to each endpoint, and counts them.
func (w *world) wantTold(endpoints int) (types map[string]int) {
	w.t.Helper()
	for _, wrong := range servers.Value[[]string](w.t, w.db, `
		SELECT coalesce(array_agg(wrong), '{}') FROM (
			SELECT concat_ws(' ', type, subject, version, 'is missing') AS wrong FROM ((`+implied+`) EXCEPT ALL (`+told+`)) e
			UNION ALL SELECT concat_ws(' ', type, subject, version, 'should not be') FROM ((`+told+`) EXCEPT ALL (`+implied+`)) e
			UNION ALL SELECT concat_ws(' ', type, subject, version, 'is not delivered') FROM webhook_events e WHERE (SELECT count(*) FROM webhook_deliveries WHERE event_id = e.id) <> $1) w`, endpoints) {
		w.t.Error(wrong)
	}
	return servers.Value[map[string]int](w.t, w.db, `SELECT jsonb_object_agg(type, n) FROM (SELECT type, count(*) AS n FROM webhook_events GROUP BY type) e`)
}

// For all changes of purchases, holds, campaigns, jobs and wallets, in any order: the
// events are those that the tables imply, each once.
func TestTheEventsAreExactlyThoseThatTheTablesImply(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.endpoint("test", "https://one.example")
	w.endpoint("test", "https://two.example")
	w.endpoint("stranger", "https://three.example", "purchase.*", "hold.*", "job.*", "wallet.*")
	servers.Exec(t, w.db, `CREATE TABLE happened (type text, subject uuid)`)
	seed := rand.Uint64()
	t.Log("seed", seed)
	shop := &shop{world: w, chance: rand.New(rand.NewPCG(seed, 0))}
	shop.holdService(t)
	fixture.Wallet(t, w.db, "mina", 1_000)
	wanted := []string{"purchase.awaiting_action", "purchase.completed", "purchase.failed", "purchase.cancelled", "purchase.partially_cancelled", "purchase.refunded", "refund.failed",
		"hold.created", "hold.released", "hold.used", "hold.expired", "campaign.paused", "campaign.resumed", "job.failed", "wallet.credit", "wallet.purchase"}
	lacks := func() []string {
		return servers.Value[[]string](t, w.db, `SELECT array(SELECT unnest($1::text[]) EXCEPT SELECT type FROM webhook_events)`, wanted)
	}
	for round := 0; round < 20 || len(lacks()) > 0 && round < 200; round++ {
		if round%10 == 0 { // what is sold out says nothing new
			for range 3 {
				shop.campaigns = append(shop.campaigns, fixture.Campaign(t, w.db, fixture.Draft(6)))
			}
		}
		for _, act := range shop.acts {
			act(t)
		}
	}
	fixture.SellOut(t, w.db, fixture.Campaign(t, w.db, fixture.Draft(3)))
	shop.campaignTx(shop.campaigns[1], campaign.Pause)
	shop.happened("campaign.paused", shop.campaigns[1])
	shop.cancelCampaign(t, shop.campaigns[1])
	types := w.wantTold(2)
	if never := lacks(); len(never) > 0 || types["campaign.sold_out"]*types["campaign.drawing"]*types["campaign.cancelled"] == 0 {
		t.Errorf("not tested, because it has not happened: %v, or the end of a campaign: %v", never, types)
	}
	fixture.Sound(t, w.db)
}

// shop does what happens in a shop, by chance.
type shop struct {
	*world
	chance    *rand.Rand
	campaigns []uuid.UUID
	acts      []func(t *testing.T)
}

// happened notes an event that is to be told, and that no table shows later.
func (s *shop) happened(kind string, subject uuid.UUID) {
	servers.Exec(s.t, s.db, `INSERT INTO happened VALUES ($1, $2)`, kind, subject)
}

func (s *shop) campaignTx(id uuid.UUID, change func(context.Context, pgx.Tx, uuid.UUID) error) {
	s.tx(func(tx pgx.Tx) error {
		if err := campaign.Lock(s.t.Context(), tx, id); err != nil {
			return err
		}
		return change(s.t.Context(), tx, id)
	})
}

func (s *shop) campaign() uuid.UUID { return s.campaigns[s.chance.IntN(len(s.campaigns))] }

// holdService makes the acts of a shop.
func (s *shop) holdService(t *testing.T) {
	service := fixture.Holds(t, s.db, nil, nil)
	user := func() string { return "user-" + uuid.NewString() }
	s.acts = []func(t *testing.T){
		func(t *testing.T) { // several buyers at once; layer 6 sells out, and refuses
			id := s.campaign()
			fixture.Complete(t, s.db, fixture.PurchaseRequest(t, id, user(), 1, 1), fixture.PurchaseRequest(t, id, user(), 0, 1), fixture.WalletRequest(t, id, "mina", 0, 1))
		},
		func(t *testing.T) { // a purchase is cancelled, if there is one
			if id, campaignID, ok := s.any(`state = 'completed'`); ok {
				s.cancel(fixture.CancelRequest(t, campaignID, id), fixture.CancelRequest(t, campaignID, id))
			}
		},
		func(t *testing.T) { // two parts of a purchase are cancelled at once
			campaignID := s.campaign()
			j := fixture.Complete(t, s.db, fixture.PurchaseRequest(t, campaignID, user(), 0, 3))[0]
			if j.State != job.Succeeded {
				return
			}
			var bought sale.Result
			servers.NoError(t, json.Unmarshal(j.Result, &bought))
			var requests []job.Request
			for _, item := range bought.Positions[:2] {
				requests = append(requests, fixture.CancelRequestOf(t, campaignID,
					sale.Cancellation{PurchaseID: bought.PurchaseID, Positions: []shape.Position{item.Position}, By: "app:test"}))
			}
			s.cancel(requests...)
		},
		func(t *testing.T) { // a hold, which may be over at once, be released, or be bought
			made, err := fixture.TryHold(t, service, fixture.HoldAnyRequest(s.campaign(), user(), 0, 1))
			if err != nil {
				return
			}
			switch s.chance.IntN(4) {
			case 0:
				fixture.EndHold(t, s.db, made)
			case 1:
				if _, err := service.Release(t.Context(), made.CampaignID, made.ID); err != nil {
					t.Fatal(err)
				}
			case 2:
				fixture.Complete(t, s.db, fixture.HeldRequest(t, made.CampaignID, made.UserID, made.ID))
			}
		},
		func(*testing.T) { // a sale is paused, and goes on; each is said twice
			id := s.campaign()
			for _, change := range []func(context.Context, pgx.Tx, uuid.UUID) error{campaign.Pause, campaign.Pause, campaign.Resume, campaign.Resume} {
				s.campaignTx(id, change)
			}
			s.happened("campaign.paused", id)
			s.happened("campaign.resumed", id)
		},
		func(t *testing.T) { // a card, which pays or does not
			id := s.campaign()
			ref := fixture.Accept(t, s.db, fixture.CardRequest(t, id, user(), 0, 1))[0]
			report, err := fixture.Seller(s.db).Sell(t.Context(), []job.Ref{ref}, sale.WaitForCampaign)
			servers.NoError(t, err)
			if len(report.Due) == 0 {
				return // nothing was free
			}
			if s.chance.IntN(2) == 0 { // the buyer is asked for something, with a new page the second time
				fixture.Advance(t, s.db, report.Due[0].ID, payment.Action)
				fixture.Advance(t, s.db, report.Due[0].ID, payment.Action)
				s.happened("purchase.awaiting_action", report.Due[0].ID)
			}
			to := payment.Captured
			if s.chance.IntN(2) == 0 {
				to = payment.Ended
			}
			fixture.Advance(t, s.db, report.Due[0].ID, to)
			fixture.SettlePayments(t, s.db, ref)
		},
		func(t *testing.T) { // a card refund is stuck, then refused, and arrives at last
			id, campaignID, ok := s.any(`state = 'completed' AND payment_method = 'card'`)
			if !ok {
				return
			}
			s.cancel(fixture.CancelRequest(t, campaignID, id))
			var back uuid.UUID
			for _, set := range []string{`stuck = true`, `stuck = true`, `state = 'failed', stuck = false`, `state = 'open'`,
				`state = 'succeeded', finished_at = clock_timestamp(), attempt = 1, attempt_at = clock_timestamp(), provider_id = 're_' || id`} {
				s.tx(func(tx pgx.Tx) error {
					if err := tx.QueryRow(t.Context(), `UPDATE refunds SET `+set+` WHERE purchase_id = $1 RETURNING id`, id).Scan(&back); err != nil {
						return err
					}
					var b pgx.Batch
					purchase.QueueFollow(&b, id)
					return tx.SendBatch(t.Context(), &b).Close()
				})
			}
			s.happened("refund.failed", back) // stuck,
			s.happened("refund.failed", back) // and refused
		},
	}
}

func (s *shop) cancel(requests ...job.Request) {
	s.t.Helper()
	if _, err := fixture.Seller(s.db).Cancel(s.t.Context(), fixture.Accept(s.t, s.db, requests...), sale.WaitForCampaign); err != nil {
		s.t.Fatal(err)
	}
}

// any returns one purchase.
func (s *shop) any(condition string) (id, campaignID uuid.UUID, ok bool) {
	err := s.db.QueryRow(context.WithoutCancel(s.t.Context()), `SELECT id, campaign_id FROM purchases WHERE `+condition+` ORDER BY id LIMIT 1`).Scan(&id, &campaignID)
	return id, campaignID, err == nil
}

func (s *shop) cancelCampaign(t *testing.T, campaignID uuid.UUID) {
	t.Helper()
	payload, err := json.Marshal(lifecycle.CancelOrder{By: "operator:ops", Reason: "the organiser is ill"})
	servers.NoError(t, err)
	id := uuidv7.New()
	ref := fixture.Accept(t, s.db, job.Request{ID: id, Client: "test", Key: id.String(), Kind: job.KindCampaignCancellation, CampaignID: campaignID,
		Payload: payload, Retention: time.Hour})[0]
	_, _ = lifecycle.NewCanceller(postgres.Pool(s.db), lifecycle.Observer{}, servers.Logger(t)).Run(t.Context(), ref) // what is open at cards is put off
}
