package main

import (
	"context"
	"time"
)

// cardBuyers is how many buy by card at once, while the provider needs slowProvider for
// each call.
const (
	cardBuyers   = 300
	slowProvider = 2 * time.Second
)

// buyByCard lets cardBuyers buy by card, all at once. Whose purchase has ended buys again.
func buyByCard(ctx context.Context, d *disturber) {
	w := &window{}
	defer context.AfterFunc(ctx, func() { w.phase.Store(over) })()
	c := &crowd{address: d.sys.address, key: d.sys.setup.appKey, campaigns: d.sys.campaigns[noisyCampaign:], size: cardBuyers, card: true}
	seen := c.run(ctx, w, func() {})
	d.odd = append(d.odd, seen.unexpectedAnswers()...)
}
