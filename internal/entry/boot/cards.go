package boot

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/entry/worker"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/stripe"
)

// provider returns the client of the provider of payments. Call it once in a process, and
// only when cards are accepted.
func (p *Process) provider() *stripe.Client {
	return stripe.New(p.Settings.Payments.Stripe, p.Redis, p.Settings.Redis.Namespace, p.Logger, p.Registry)
}

// takeCards lets a worker lead payments and refunds, with connections of their own. Without a key of
// a provider it does nothing: payments that exist wait, and the sweep unsettled-payments
// says so.
func (p *Process) takeCards(ctx context.Context, w *worker.Worker) (closeAll func(), err error) {
	settings := p.Settings.Payments
	if !settings.Stripe.Enabled() {
		return func() {}, nil
	}
	db, err := p.paymentsPool(ctx)
	if err != nil {
		return nil, err
	}
	client := p.provider()
	w.TakeCards(worker.Cards{Provider: client, DB: db}, settings, stripe.APIVersion, p.Registry)
	w.TakeRefunds(client, db, settings, p.Registry)
	return func() { client.Close(); closePool(db) }, nil
}

// paymentsPool opens the connections that are for payments alone: while many of them
// wait for a slow provider, they take none from others, and others take none from them.
func (p *Process) paymentsPool(ctx context.Context) (*pgxpool.Pool, error) {
	settings := p.Settings.Postgres
	settings.MaxConnections = p.Settings.Payments.MaxConnections
	return postgres.Open(ctx, settings, "triprize-"+p.Name+"-payments")
}
