package cards

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/payprovider"
	"triprize/internal/payment"
	"triprize/internal/payment/reconciliation"
	"triprize/internal/platform/telemetry"
)

// storeKey stores the key under which an intent will be created.
func (r *run) storeKey(ctx context.Context) (Outcome, error) {
	changed := r.p
	changed.Phase = payment.Creating
	changed.Attempt++
	changed.KeyAge = 0
	return r.goOn(r.store(ctx, changed, payment.Always, r.settings.Lease, 0))
}

// call calls the provider. The answer decides the next move.
func (r *run) call(ctx context.Context, m move) (Outcome, error) {
	if err := r.renew(ctx); err != nil {
		return "", err
	}
	c := callOf(m)
	calling, cancel := context.WithTimeout(ctx, r.settings.CallTimeout)
	defer cancel()
	r.hit(string(c) + ".call")
	in, err := r.send(calling, c)
	r.hit(string(c) + ".called")
	if err != nil {
		return r.failed(ctx, c, err)
	}
	if err := r.check(in); err != nil {
		return r.mismatch(ctx, c, err)
	}
	r.intent = in
	r.confirmed = r.confirmed || c == callConfirm
	if in.Decline != nil && r.refused != callConfirm { // else it is about the method before
		r.decline = in.Decline
	}
	if c == callCreate {
		return r.created(ctx, in)
	}
	return r.goOn(nil)
}

func callOf(m move) call {
	switch m {
	case create:
		return callCreate
	case confirm:
		return callConfirm
	case capture:
		return callCapture
	case cancel:
		return callCancel
	}
	return callFetch
}

func (r *run) send(ctx context.Context, c call) (payprovider.Intent, error) {
	switch c {
	case callCreate:
		return r.provider.CreateIntent(ctx, r.newIntent())
	case callConfirm:
		return r.provider.ConfirmIntent(ctx, *r.p.IntentID, r.confirmKey(), r.p.PaymentMethod, r.returnURL())
	case callCapture:
		return r.provider.CaptureIntent(ctx, *r.p.IntentID, r.captureKey(), r.p.Amount)
	case callCancel:
		return r.provider.CancelIntent(ctx, *r.p.IntentID, r.cancelKey())
	}
	return r.provider.Intent(ctx, *r.p.IntentID)
}

// renew makes sure that the lease covers another call. A worker that was stopped for
// longer than its lease ends here.
func (r *run) renew(ctx context.Context) error {
	if time.Since(r.leased)+r.settings.CallTimeout < r.settings.Lease {
		return nil
	}
	began := time.Now()
	if err := payment.Write(ctx, r.db, &r.p, payment.Always, r.settings.Lease, nil); err != nil {
		return err
	}
	r.leased = began
	return nil
}

// created stores the id of the new intent, if the reservation still stands: from then on
// it may be confirmed.
func (r *run) created(ctx context.Context, in payprovider.Intent) (Outcome, error) {
	changed := r.p
	changed.Phase, changed.IntentID = payment.Confirming, &in.ID
	r.answered(&changed)
	return r.goOn(r.store(ctx, changed, payment.BeforeDeadline, r.settings.Lease, 0, payment.StepPaymentStarted))
}

// forward stores what the provider has said of an intent.
func (r *run) forward(ctx context.Context, m move) (Outcome, error) {
	changed := r.p
	changed.NextAction, changed.Decline = nil, nil
	r.answered(&changed)
	if m != awaitMethod && r.intent.PaymentMethod != "" { // the one before has succeeded while another one came
		changed.PaymentMethod = r.intent.PaymentMethod
	}
	switch m {
	case show:
		changed.Phase, changed.NextAction = payment.Action, &r.intent.ActionURL
		return r.waits(r.store(ctx, changed, payment.Always, 0, r.pauseOf(&changed), payment.StepActionRequired))
	case awaitMethod:
		until := r.now().Add(payment.TryWithin).Truncate(time.Microsecond)
		changed.Phase, changed.Decline, changed.DeclinedUntil = payment.CardDeclined, r.whyDeclined(), &until
		return r.waits(r.store(ctx, changed, payment.Always, 0, r.pauseOf(&changed), payment.StepDeclined))
	case slow:
		changed.Phase = payment.Processing
		return r.waits(r.store(ctx, changed, payment.Always, 0, r.pauseOf(&changed), payment.StepProcessing))
	case startCapture:
		changed.Phase = payment.Capturing
		return r.goOn(r.store(ctx, changed, payment.BeforeDeadline, r.settings.Lease, 0, r.authorized()...))
	}
	changed.Phase, changed.Received = payment.Captured, r.intent.Received
	if err := r.store(ctx, changed, payment.Always, 0, r.settings.Lease, payment.StepCaptured); err != nil {
		return "", err
	}
	r.metrics.duration.Observe(r.now().Sub(r.p.CreatedAt).Seconds())
	return Conclude, nil
}

func (r *run) authorized() []string {
	if r.p.Phase == payment.Action {
		return []string{payment.StepActionDone, payment.StepAuthorized}
	}
	return []string{payment.StepAuthorized}
}

// giveUp stores that nothing is confirmed or captured any more. Without an intent that
// is the end.
func (r *run) giveUp(ctx context.Context, ending payment.Ending) (Outcome, error) {
	if r.p.IntentID == nil {
		return r.end(ctx, ending)
	}
	changed, step := r.endingAs(ending)
	changed.Phase = payment.Expiring
	return r.goOn(r.store(ctx, changed, payment.Always, r.settings.Lease, 0, step...))
}

// end stores that there is no intent, or that the provider has ended it.
func (r *run) end(ctx context.Context, ending payment.Ending) (Outcome, error) {
	changed, step := r.endingAs(ending)
	changed.Phase = payment.Ended
	if err := r.store(ctx, changed, payment.Always, 0, r.settings.Lease, step...); err != nil {
		return "", err
	}
	return Conclude, nil
}

// endingAs returns the payment with a reason for its end, and the step that tells of it,
// unless it has one already.
func (r *run) endingAs(ending payment.Ending) (changed payment.Payment, steps []string) {
	changed = r.p
	changed.NextAction = nil
	r.answered(&changed)
	if changed.Ending != nil {
		return changed, nil
	}
	if changed.CancelJob != nil {
		ending = payment.CancelledByBuyer
	}
	changed.Ending = &ending
	switch ending {
	case payment.Declined, payment.Refused:
		if r.p.Phase == payment.CardDeclined { // it says so already
			return changed, nil
		}
		changed.Decline = r.whyDeclined()
		return changed, []string{payment.StepDeclined}
	case payment.Expired:
		return changed, []string{payment.StepExpired}
	}
	return changed, nil
}

// declinedByBank reports whether the payment method was declined, and not refused.
func (r *run) declinedByBank() bool {
	return r.intent.Status == payprovider.RequiresPaymentMethod && r.refused != callConfirm
}

// whyDeclined returns what is told of a payment that was declined or refused.
func (r *run) whyDeclined() *payprovider.Decline {
	switch d := r.decline; {
	case d != nil && r.refused == callConfirm:
		return d
	case r.intent.Status == payprovider.RequiresAction: // and there is no page for it. With the intent's client secret an app could do it, and a buyer confirm another card behind us
		return &payprovider.Decline{Code: "authentication_required", Message: "This payment method cannot be used here: it asks for a step that is no page to visit."}
	case d != nil:
		return d
	}
	return &payprovider.Decline{Code: "card_declined", Message: "The payment was declined."}
}

// answered notes that the provider has answered: no fault is left.
func (r *run) answered(p *payment.Payment) { p.Faults, p.WaitingFor, p.LastError = 0, nil, nil }

func (r *run) waits(err error) (Outcome, error) { return Waits, err }

// noteUnknown notes payments that this installation has made at the provider, with money on
// them, and that our books do not know: after a restore, or a failover that has lost what
// was committed last. One that ended without money is no difference. Others use the
// account, too: theirs are ignored.
func (e *Events) noteUnknown(ctx context.Context, tx pgx.Tx, work *eventWork) error {
	if len(work.unknown) == 0 {
		return nil
	}
	ours, err := reconciliation.Installation(ctx, tx)
	if err != nil {
		return err
	}
	var open, over []reconciliation.Difference
	for _, event := range work.unknown {
		in, ok := e.reader.IntentIn([]byte(event.Payload))
		if !ok || in.Metadata[payprovider.InstallationKey] != ours.String() {
			continue
		}
		switch in.Status {
		case payprovider.Succeeded, payprovider.RequiresCapture, payprovider.Processing:
			open = append(open, unknownHere(in))
		case payprovider.Canceled:
			over = append(over, unknownHere(in))
		default:
			continue
		}
		work.outcomes[event.ID] = eventRecorded
	}
	if _, err := reconciliation.RecordReported(ctx, tx, over, true); err != nil {
		return err
	}
	work.missing, err = reconciliation.RecordReported(ctx, tx, open, false)
	return err
}

func unknownHere(in payprovider.Intent) reconciliation.Difference {
	amount := int64(in.Amount)
	d := reconciliation.Difference{Kind: reconciliation.UnknownHere, ObjectID: in.ID, ThereAmount: &amount, ThereCurrency: &in.Currency,
		Detail: "this installation has made the payment, it is " + string(in.Status) + " at the provider, and our books do not know it"}
	if id, err := uuid.Parse(in.Metadata[purchaseField]); err == nil {
		d.PurchaseID = &id
	}
	return d
}

// sayUnknown logs what a batch has noted, after its commit.
func (e *Events) sayUnknown(w *eventWork) {
	for _, d := range w.missing {
		e.logger.Error("a payment of ours at the provider is not in our books", "difference", d.ID, "intent", d.ObjectID, "purchase", d.PurchaseID,
			"amount", *d.ThereAmount, "currency", *d.ThereCurrency)
	}
}

type metrics struct {
	runs       *prometheus.CounterVec // by outcome
	phases     *prometheus.CounterVec // by phase
	faults     *prometheus.CounterVec // by call and kind
	mismatches *prometheus.CounterVec // by call
	unexpected prometheus.Counter
	duration   prometheus.Histogram
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "triprize_payment_runs_total",
			Help: "Runs of payments by this worker, by outcome: nothing, waits, fenced, conclude."}, []string{"outcome"}),
		phases: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "triprize_payment_phases_total",
			Help: "Phases that this worker has stored."}, []string{"phase"}),
		faults: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "triprize_payment_faults_total",
			Help: "Calls of the provider for payments that failed, by call and by what it means (kind)."}, []string{"call", "kind"}),
		mismatches: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "triprize_payment_mismatches_total",
			Help: "Answers of the provider with another amount, currency, mode or purchase than ours, by call. Must stay 0."}, []string{"call"}),
		unexpected: prometheus.NewCounter(prometheus.CounterOpts{Name: "triprize_payment_unexpected_states_total",
			Help: "Looks at payments that wait for an operator, because the provider says what cannot be. Must stay 0."}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "triprize_payment_duration_seconds",
			Help: "Time from the reservation to the capture.", Buckets: []float64{.25, .5, 1, 2, 4, 8, 15, 30, 60, 120, 300, 900, 3600}}),
	}
	registry.MustRegister(m.runs, m.phases, m.faults, m.mismatches, m.unexpected, m.duration)
	telemetry.Expect(m.runs, Nothing, Waits, Fenced, Conclude)
	telemetry.Expect(m.phases, payment.Creating, payment.Confirming, payment.Action, payment.CardDeclined, payment.Processing,
		payment.Capturing, payment.Captured, payment.Expiring, payment.Late, payment.Ended, payment.RefundDue)
	for _, c := range []call{callCreate, callFetch, callConfirm, callCapture, callCancel} {
		telemetry.Expect(m.mismatches, c)
		for _, kind := range payprovider.ErrorKinds {
			m.faults.WithLabelValues(string(c), string(kind))
		}
	}
	return m
}
