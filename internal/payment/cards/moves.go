package cards

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"triprize/internal/domain/payprovider"
	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
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
func (r *run) call(ctx context.Context, c move) (Outcome, error) {
	if err := r.renew(ctx); err != nil {
		return "", err
	}
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
	r.confirmed = r.confirmed || c == confirm
	if in.Decline != nil && r.refused != confirm { // else it is about the method before
		r.decline = in.Decline
	}
	if c == create {
		return r.created(ctx, in)
	}
	return r.goOn(nil)
}

func (r *run) send(ctx context.Context, c move) (payprovider.Intent, error) {
	switch c {
	case create:
		return r.provider.CreateIntent(ctx, r.newIntent())
	case confirm:
		return r.provider.ConfirmIntent(ctx, *r.p.IntentID, r.confirmKey(), r.p.PaymentMethod,
			cmp.Or(postgres.ValueOf(r.p.ReturnURL), r.settings.ReturnURL))
	case capture:
		return r.provider.CaptureIntent(ctx, *r.p.IntentID, r.again("capture:"+r.p.PurchaseID.String()), r.p.Amount)
	case cancel:
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

// The keys of calls. Those of an existing intent count failed attempts: an error that
// the provider has stored under a key would come back for ever. A second call under
// another key is harmless, since the intent's own state allows each of them once.

func (r *run) confirmKey() string {
	key := fmt.Sprintf("confirm:%s:%d", r.p.PurchaseID, r.p.Attempt)
	if r.p.Tries > 0 {
		key += fmt.Sprintf(":method-%d", r.p.Tries)
	}
	return r.again(key)
}

// cancelKey names the status that the intent was found in: a call refused in one may
// succeed in another.
func (r *run) cancelKey() string {
	key := "cancel:" + r.p.PurchaseID.String()
	if r.intent.Status != "" {
		key += ":" + string(r.intent.Status)
	}
	return r.again(key)
}

func (r *run) again(key string) string {
	if r.p.Faults == 0 {
		return key
	}
	return fmt.Sprintf("%s:%d", key, r.p.Faults)
}

// newIntent is what an intent is made from. The same payment must always give the same:
// the provider refuses a key with other parameters.
func (r *run) newIntent() payprovider.NewIntent {
	return payprovider.NewIntent{
		Key: fmt.Sprintf("pi:%s:%d", r.p.PurchaseID, r.p.Attempt), Amount: r.p.Amount, Currency: r.p.Currency, PaymentMethod: r.p.PaymentMethod,
		Description: "purchase " + r.p.PurchaseID.String(),
		Metadata:    map[string]string{payprovider.PurchaseKey: r.p.PurchaseID.String(), payprovider.CampaignKey: r.p.CampaignID.String()},
	}
}

// check compares what has come back with what we have.
func (r *run) check(in payprovider.Intent) error {
	const notOurs = "what the provider has sent is not our payment: "
	p := r.p
	switch {
	case in.ID == "" || p.IntentID != nil && *p.IntentID != in.ID:
		return fmt.Errorf(notOurs+"it is intent %q", in.ID)
	case in.Livemode != r.settings.Livemode:
		return fmt.Errorf(notOurs+"%s has livemode %t", in.ID, in.Livemode)
	case in.Amount != p.Amount || in.Currency != p.Currency:
		return fmt.Errorf(notOurs+"%s is over %d %s, and ours over %d %s", in.ID, in.Amount, in.Currency, p.Amount, p.Currency)
	case in.Metadata[payprovider.PurchaseKey] != p.PurchaseID.String():
		return fmt.Errorf(notOurs+"%s belongs to purchase %q", in.ID, in.Metadata[payprovider.PurchaseKey])
	case in.Status == payprovider.Succeeded && in.Received != p.Amount:
		return fmt.Errorf(notOurs+"%s has captured %d of %d %s", in.ID, in.Received, p.Amount, p.Currency)
	}
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
		steps := []string{payment.StepAuthorized}
		if r.p.Phase == payment.Action {
			steps = []string{payment.StepActionDone, payment.StepAuthorized}
		}
		return r.goOn(r.store(ctx, changed, payment.BeforeDeadline, r.settings.Lease, 0, steps...))
	}
	changed.Phase, changed.Received = payment.Captured, r.intent.Received
	if err := r.store(ctx, changed, payment.Always, 0, r.settings.Lease, payment.StepCaptured); err != nil {
		return "", err
	}
	r.metrics.duration.Observe(r.now().Sub(r.p.CreatedAt).Seconds())
	return Settle, nil
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
	return Settle, nil
}

// endingAs returns the payment with a reason for its end, and the step that reports it,
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
	return r.intent.Status == payprovider.RequiresPaymentMethod && r.refused != confirm
}

// whyDeclined returns what is reported of a payment that was declined or refused.
func (r *run) whyDeclined() *payprovider.Decline {
	switch d := r.decline; {
	case d != nil && r.refused == confirm:
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
