package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/payprovider"
	"triprize/internal/platform/stripe"
	"triprize/sandbox/stripesim"
)

// The secrets of the simulator of Stripe. Its money is none.
const (
	providerKey    = "sk_test_of_the_bench"
	providerSecret = "whsec_of_the_bench"
)

// serveCards is serve with a simulator of Stripe in this process, whose every answer takes
// latency. It takes as many calls as come: the processes keep their own rates, which are the
// defaults. It sends the events that an endpoint at Stripe should have enabled.
func (sys *system) serveCards(ctx context.Context, latency time.Duration, env ...string) (err error) {
	sys.provider, err = stripesim.Start(ctx, "127.0.0.1:0", stripesim.Settings{Key: providerKey, WebhookSecret: providerSecret, Rate: -1, EndpointRate: -1,
		WebhookEvents: payprovider.EventTypes(stripe.NewReader(false))})
	if err != nil {
		return err
	}
	if err := sys.provider.SetFaults(stripesim.Faults{LatencyMS: latency.Milliseconds()}); err != nil {
		return err
	}
	if err := sys.serve(ctx, 1, append(env, sys.provider.Env()...)...); err != nil {
		return err
	}
	return sys.provider.SetWebhook(sys.url()+"/webhooks/stripe", providerSecret)
}

// longestDrain bounds the time until what was begun by card has ended.
const longestDrain = 2 * time.Minute

// finalizeCards lets the provider answer at once, waits until every job is final and every
// webhook was taken, and notes what the provider has seen. It returns what is wrong
// between its books and ours.
func (sys *system) finalizeCards(ctx context.Context, r *result) (wrong []string, err error) {
	p := sys.provider
	if err := p.SetFaults(stripesim.Faults{}); err != nil {
		return nil, err
	}
	for start := time.Now(); ; {
		var open int
		err := sys.db.QueryRow(ctx, `
			SELECT (SELECT count(*) FROM payments WHERE finished_at IS NULL) +
			       (SELECT count(*) FROM jobs WHERE state NOT IN ('succeeded', 'failed'))`).Scan(&open)
		if err != nil {
			return nil, fmt.Errorf("finalize cards: %w", err)
		}
		unsent := p.Totals().Unsent
		if open == 0 && unsent == 0 {
			break
		}
		if time.Since(start) > longestDrain {
			wrong = append(wrong, fmt.Sprintf("%d payments and jobs are open, and %d webhooks were not taken, after %s", open, unsent, longestDrain))
			break
		}
		wait(ctx, 200*time.Millisecond, nil)
	}
	totals := p.Totals()
	r.note("calls of the provider", float64(totals.Requests))
	r.note("webhooks", float64(totals.Delivered))
	if totals.RateLimited > 0 {
		wrong = append(wrong, fmt.Sprintf("%d calls were answered with 429", totals.RateLimited))
	}
	differences, err := sys.compareCards(ctx, r)
	return append(wrong, differences...), err
}

// compareCards compares what the provider has kept with our completed purchases by card,
// one by one and in all.
func (sys *system) compareCards(ctx context.Context, r *result) (wrong []string, err error) {
	rows, err := sys.db.Query(ctx, `SELECT id, amount FROM purchases WHERE payment_method = 'card' AND state = 'completed'`)
	if err != nil {
		return nil, fmt.Errorf("compare cards: %w", err)
	}
	sold := make(map[string]int64)
	var ours, kept int64
	var id uuid.UUID
	var amount int64
	if _, err := pgx.ForEachRow(rows, []any{&id, &amount}, func() error {
		sold[id.String()] = amount
		ours += amount
		return nil
	}); err != nil {
		return nil, fmt.Errorf("compare cards: %w", err)
	}
	r.note("sold by card, whole run", float64(len(sold)))
	for _, payment := range sys.provider.Payments() {
		left := int64(payment.Captured - payment.Refunded)
		kept += left
		purchase := payment.Metadata["purchase_id"]
		if left != 0 && sold[purchase] != left {
			wrong = append(wrong, fmt.Sprintf("the provider has kept %d for purchase %s, which is sold for %d", left, purchase, sold[purchase]))
		}
		if left != 0 {
			delete(sold, purchase) // a second payment for it is one too many
		}
	}
	if len(sold) > 0 {
		wrong = append(wrong, fmt.Sprintf("%d purchases by card are completed, and the provider has no money for them", len(sold)))
	}
	wrong = wrong[:min(len(wrong), violationsShown)]
	if kept != ours {
		wrong = append(wrong, fmt.Sprintf("the provider has kept %d, and purchases by card come to %d", kept, ours))
	}
	return wrong, nil
}

// besideCards measures purchases by wallet in one campaign, while others buy by card in
// another, or what either does alone. The system is the same, with the same provider.
type besideCards struct {
	walletBuyers int
	cardBuyers   int // each waits for the end of its purchase
}

// enoughCardBuyers are more than the default rates let through: there are always some
// who wait for the provider.
const enoughCardBuyers = 60

const (
	walletPayers    = 5000
	providerLatency = 200 * time.Millisecond // of each call
	cardRunUp       = 2 * time.Second        // until purchases by card end as fast as they begin
	cardCampaign    = 1
	cardBase        = 100 // 5,050 positions, more than are bought by card in a minute

	cardsPerSecond = "sold by card/s"
)

func (b besideCards) run(ctx context.Context, s *setup, measured time.Duration) (result, error) {
	o := byWallet(measured, walletPayers)
	o.name, o.baseLengths = "template_wallets_and_cards", append(o.baseLengths, cardBase)
	return s.onSale(ctx, o, func(sys *system) (r result, err error) {
		if err := sys.serveCards(ctx, providerLatency); err != nil {
			return r, err
		}
		w := newWindow(sys.meter())
		byWallet, byCard, err := b.sell(ctx, sys, w, measured)
		if err != nil {
			return r, err
		}
		counted := byWallet
		if b.walletBuyers == 0 {
			counted = byCard
		}
		r = w.result(counted)
		r.note("refused/s", perSecond(byWallet.measured[refused], w.elapsed))
		cards := newResult(byCard.measured[succeeded], w.elapsed, byCard.took[succeeded])
		r.note(cardsPerSecond, cards.PerSecond)
		r.note("by card: p50 ms", cards.P50)
		r.note("by card: p95 ms", cards.P95)
		r.note("by card: refused/s", perSecond(byCard.measured[refused], w.elapsed))
		r.noteUsage(w, counted.measured[succeeded])
		wrong, err := sys.finalizeCards(ctx, &r)
		if err != nil {
			return r, err
		}
		byWallet.add(byCard)
		r.wrong, err = sys.finish(ctx, byWallet, 1)
		r.wrong = append(r.wrong, wrong...)
		return r, err
	})
}

// sell lets both crowds buy for one window. Those who pay by card begin earlier.
func (b besideCards) sell(ctx context.Context, sys *system, w *window, measured time.Duration) (byWallet, byCard *observed, err error) {
	wallets, cards := sys.crowd(b.walletBuyers), sys.crowd(b.cardBuyers)
	wallets.campaigns, wallets.payers = sys.campaigns[:cardCampaign], walletPayers
	cards.campaigns, cards.card = sys.campaigns[cardCampaign:], true
	var group sync.WaitGroup
	group.Go(func() { byCard = cards.run(ctx, w) })
	wait(ctx, cardRunUp, nil)
	err = w.measure(ctx, measured, func() { byWallet = wallets.run(ctx, w) })
	group.Wait()
	return byWallet, byCard, err
}
