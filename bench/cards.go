package main

import (
	"context"
	"fmt"
	"sync"
	"time"

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
func (sys *system) serveCards(ctx context.Context, latency time.Duration) (err error) {
	sys.provider, err = stripesim.Start(ctx, "127.0.0.1:0", stripesim.Settings{Key: providerKey, WebhookSecret: providerSecret, Rate: -1, EndpointRate: -1,
		WebhookEvents: payprovider.EventTypes(stripe.NewReader(false))})
	if err != nil {
		return err
	}
	if err := sys.provider.SetFaults(stripesim.Faults{LatencyMS: latency.Milliseconds()}); err != nil {
		return err
	}
	if err := sys.serve(ctx, 1, sys.provider.Env()...); err != nil {
		return err
	}
	return sys.provider.SetWebhook("http://"+sys.address+"/webhooks/stripe", providerSecret)
}

// besideCards measures purchases by wallet in one campaign, while others buy by card in
// another, each waiting for the end of its purchase; or while nobody does.
type besideCards struct{ cardBuyers int }

// enoughCardBuyers are more than the default rates let through: there are always some
// who wait for the provider.
const enoughCardBuyers = 60

const (
	providerLatency = 200 * time.Millisecond // of each call
	cardRunUp       = 2 * time.Second        // until purchases by card end as fast as they begin
	cardBase        = 100                    // 5,050 positions, more than are bought by card in a minute

	cardsPerSecond = "sold by card/s"
)

func (b besideCards) run(ctx context.Context, s *setup, measured time.Duration) (result, error) {
	return s.onSale(ctx, byWallet, func(sys *system) (r result, err error) {
		if err := sys.serveCards(ctx, providerLatency); err != nil {
			return r, err
		}
		w := newWindow(sys.meter())
		wallets, cards := sys.crowd(connections), sys.crowd(b.cardBuyers)
		wallets.campaigns, wallets.paid, wallets.payers = sys.campaigns[:1], paidByWallet, walletPayers
		cards.campaigns, cards.paid = sys.campaigns[1:], paidByCard
		var paidByWallets, paidByCards *observed
		var group sync.WaitGroup
		group.Go(func() { paidByCards = cards.run(ctx, w) })
		wait(ctx, cardRunUp, nil)
		err = w.measure(ctx, measured, func() { paidByWallets = wallets.run(ctx, w) })
		group.Wait()
		if err != nil {
			return r, err
		}
		r = w.result(paidByWallets)
		sold := newResult(paidByCards.measured[succeeded], w.elapsed, paidByCards.took[succeeded])
		r.note(cardsPerSecond, sold.figures[rate])
		r.note("by card: p50 ms", sold.figures[median])
		r.note("by card: p95 ms", sold.figures[p95])
		r.noteUsage(w, paidByWallets.measured[succeeded])
		paidByWallets.add(paidByCards)
		r.wrong, err = sys.finish(ctx, paidByWallets, 1)
		if limited := sys.provider.Totals().RateLimited; limited > 0 {
			r.wrong = append(r.wrong, fmt.Sprintf("%d calls were answered with 429", limited))
		}
		return r, err
	})
}
