package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/payprovider"
	"triprize/internal/platform/devstack"
	"triprize/internal/platform/stripe"
	"triprize/internal/simulator/stripesim"
)

// cardProvider is a simulator of Stripe in this process. It takes as many calls as come:
// the processes keep their own rates, which are the defaults. It sends the events that an
// endpoint at Stripe should have enabled.
type cardProvider struct {
	server  *stripesim.Server
	address string
	end     context.CancelFunc
	ended   chan error
}

// The secrets of the simulator. Its money is none.
const (
	providerKey    = "sk_test_of_the_bench"
	providerSecret = "whsec_of_the_bench"
)

// startProvider starts a simulator whose every answer takes latency. It returns the
// settings by which processes find it. The processes are started next, and then
// sendWebhooks is called. The system's close stops it.
func (sys *system) startProvider(ctx context.Context, latency time.Duration) (env []string, err error) {
	p := &cardProvider{ended: make(chan error, 1)}
	if p.address, err = devstack.FreeAddress(); err != nil {
		return nil, err
	}
	if p.server, err = stripesim.New(stripesim.Settings{Key: providerKey, Rate: -1, EndpointRate: -1, WebhookEvents: payprovider.EventTypes(stripe.NewReader(false))}); err != nil {
		return nil, err
	}
	serving, end := context.WithCancel(context.WithoutCancel(ctx)) // the clean-up ends it
	p.end = end
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", p.address)
	if err == nil {
		err = p.server.SetFaults(stripesim.Faults{LatencyMS: latency.Milliseconds()})
	}
	if err != nil {
		end()
		return nil, errors.Join(err, p.server.Close())
	}
	go func() { p.ended <- stripesim.Serve(serving, listener, p.server) }()
	sys.provider = p
	return []string{
		"TRIPRIZE_PAYMENTS_STRIPE_KEY=" + providerKey, "TRIPRIZE_PAYMENTS_STRIPE_URL=http://" + p.address,
		"TRIPRIZE_PAYMENTS_STRIPE_WEBHOOK_SECRET=" + providerSecret, "TRIPRIZE_PAYMENTS_RETURN_URL=https://shop.example/paid",
	}, nil
}

// sendWebhooks lets the simulator send its webhooks to the api.
func (sys *system) sendWebhooks() error {
	return sys.provider.server.SetWebhook("http://"+sys.address+"/webhooks/stripe", providerSecret)
}

func (p *cardProvider) close() error {
	p.end()
	return <-p.ended
}

// longestDrain bounds the time until what was begun by card has ended.
const longestDrain = 2 * time.Minute

// finalizeCards lets the provider answer at once, waits until every job is final and every
// webhook was taken, and notes what the provider has seen. It returns what is wrong
// between its books and ours.
func (sys *system) finalizeCards(ctx context.Context, r *result) (wrong []string, err error) {
	p := sys.provider.server
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
	for _, payment := range sys.provider.server.Payments() {
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
