package boot

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/payprovider"
	"triprize/internal/entry/worker"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/stripe"
	"triprize/internal/service/reconciliation"
)

// takes reports whether a card can pay in a currency.
var takes = stripe.Takes

// provider returns the payment provider, nil where cards are not accepted. Call it once in
// a process.
func (p *Process) provider() payprovider.Provider {
	if !p.Settings.Payments.Stripe.Enabled() {
		return nil
	}
	p.tellMode(p.Settings.Payments.Stripe.Live())
	return reconciliation.Mark(stripe.New(p.Settings.Payments.Stripe, p.Logger, p.Registry), p.DB)
}

// tellMode tells whether card payments move money: in /readyz, a gauge and, if they do not, the log.
func (p *Process) tellMode(live bool) {
	gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: "triprize_payments_livemode",
		Help: "1 when the key of the payment provider is live; 0 in test mode, where purchases by card cost nothing. Missing where no cards are taken."})
	p.Registry.MustRegister(gauge)
	p.Health.TakeCards(live)
	if live {
		gauge.Set(1)
		return
	}
	p.Logger.Warn("the payment provider is in test mode: purchases by card cost nothing", "setting", "payments.allow_test")
}

// takeCards lets a worker lead payments and refunds, with connections of their own: pools. Without a key of
// a provider it does nothing: payments that exist wait, and the sweep due-items
// says so.
func (p *Process) takeCards(ctx context.Context, w *worker.Worker) (pools []*pgxpool.Pool, closeAll func(), err error) {
	settings := p.Settings.Payments
	client := p.provider()
	if client == nil {
		return nil, func() {}, nil
	}
	db, err := p.paymentsPool(ctx)
	if err != nil {
		client.Close()
		return nil, nil, err
	}
	if err := p.checkAccount(ctx, client); err != nil {
		client.Close()
		closePool(db)
		return nil, nil, err
	}
	w.TakeCards(worker.Cards{Provider: client, Events: client, DB: db}, settings, p.Registry)
	w.TakeRefunds(client, db, settings, p.Registry)
	return []*pgxpool.Pool{db}, func() { client.Close(); closePool(db) }, nil
}

// checkAccount refuses the key of another account than payments.stripe.account. While the
// provider does not answer, nobody can tell; a worker has other work, too, and starts.
func (p *Process) checkAccount(ctx context.Context, client payprovider.Provider) error {
	if p.Settings.Payments.Stripe.Account == "" {
		return nil
	}
	err := client.CheckAccount(ctx)
	if failed, ok := errors.AsType[*payprovider.Error](err); ok && failed.Kind == payprovider.KindMismatch {
		return fmt.Errorf("setting payments.stripe.account: %w", err)
	}
	if err != nil {
		p.Logger.Error("it is not known whose the key of payments.stripe is: Stripe has not said", "error", err)
	}
	return nil
}

// paymentsPool opens the connections that are for payments alone: while many of them
// wait for a slow provider, they take none from others, and others take none from them.
func (p *Process) paymentsPool(ctx context.Context) (*pgxpool.Pool, error) {
	settings := p.Settings.Postgres
	settings.MaxConnections = 4
	return postgres.Open(ctx, settings, "triprize-"+p.Name+"-payments", p.pools...)
}
