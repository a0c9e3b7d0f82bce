package main

import (
	"context"
	"errors"
	"sync"
	"time"
)

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

func walletsAndCards(measured time.Duration) offer {
	return offer{"template_wallets_and_cards", append(hot(measured).baseLengths, cardBase)}
}

func (b besideCards) run(ctx context.Context, s *setup, measured time.Duration) (r result, err error) {
	sys, err := s.openSale(ctx, walletsAndCards(measured))
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, sys.close(ctx)) }()
	if err := fund(ctx, sys.db, owners(walletPayers)); err != nil {
		return r, err
	}
	env, err := sys.startProvider(ctx, providerLatency)
	if err != nil {
		return r, err
	}
	if err := sys.serve(ctx, 1, env...); err != nil {
		return r, err
	}
	if err := sys.sendWebhooks(); err != nil {
		return r, err
	}
	w := &window{meter: sys.meter()}
	byWallet, byCard, err := b.sell(ctx, sys, w, measured)
	if err != nil {
		return r, err
	}
	counted := byWallet
	if b.walletBuyers == 0 {
		counted = byCard
	}
	r = newResult(counted.measured[succeeded], w.elapsed, counted.took[succeeded])
	if counted.measured[soldOut] > 0 {
		r.note("SOLD OUT, measured s", w.elapsed.Seconds())
	}
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
	r.wrong, err = sys.finish(ctx, byWallet)
	r.wrong = append(r.wrong, wrong...)
	return r, err
}

// sell lets both crowds buy for one window. Those who pay by card begin earlier.
func (b besideCards) sell(ctx context.Context, sys *system, w *window, measured time.Duration) (byWallet, byCard *observed, err error) {
	wallets := &crowd{address: sys.address, key: sys.setup.appKey, campaigns: sys.campaigns[:cardCampaign], size: b.walletBuyers, payers: walletPayers}
	cards := &crowd{address: sys.address, key: sys.setup.appKey, campaigns: sys.campaigns[cardCampaign:], size: b.cardBuyers, card: true}
	var once sync.Once
	out := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() { byCard = cards.run(ctx, w, func() {}) })
	wait(ctx, cardRunUp, nil)
	group.Go(func() { byWallet = wallets.run(ctx, w, func() { once.Do(func() { close(out) }) }) })
	err = w.pass(ctx, measured, out)
	group.Wait()
	return byWallet, byCard, err
}
