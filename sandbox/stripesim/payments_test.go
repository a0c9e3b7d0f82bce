package stripesim

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v85"
)

func TestAHeldPaymentGoesThroughItsStates(t *testing.T) {
	s := open(t, Settings{})
	i := s.create(held("pm_card_visa"))
	if i.Status != "requires_confirmation" || i.Livemode || i.Amount != 500 || i.Currency != "jpy" || i.PaymentMethod.ID != "pm_card_visa" {
		t.Errorf("created: %+v", i)
	}
	if i = s.confirmed(i.ID); i.Status != "requires_capture" || i.AmountCapturable != 500 || i.AmountReceived != 0 {
		t.Errorf("confirmed: %s, %d, %d", i.Status, i.AmountCapturable, i.AmountReceived)
	}
	if i = s.capture(i.ID); i.Status != "succeeded" || i.AmountCapturable != 0 || i.AmountReceived != 500 {
		t.Errorf("captured: %s, %d, %d", i.Status, i.AmountCapturable, i.AmountReceived)
	}
	if i = s.intent(i.ID); i.LatestCharge == nil || !i.LatestCharge.Captured || i.LatestCharge.Amount != 500 {
		t.Errorf("its charge: %+v", i.LatestCharge)
	}
	want := []string{"charge.captured", "charge.succeeded", "payment_intent.amount_capturable_updated", "payment_intent.created", "payment_intent.succeeded"}
	if got := sorted(s.types(len(want))); !slices.Equal(got, want) {
		t.Errorf("events %q", got)
	}
}

func TestWithoutManualCaptureAConfirmationTakesTheMoney(t *testing.T) {
	s := open(t, Settings{})
	p := held("pm_card_jcb")
	p.PaymentMethodOptions = nil
	if i := s.confirmed(s.create(p).ID); i.Status != "succeeded" || i.AmountReceived != 500 {
		t.Errorf("%s, %d", i.Status, i.AmountReceived)
	}
	p = held("pm_card_mastercard")
	p.PaymentMethodOptions, p.CaptureMethod = nil, stripe.String("manual")
	if i := s.confirmed(s.create(p).ID); i.Status != "requires_capture" {
		t.Errorf("%s", i.Status)
	}
}

func TestADeclineSaysWhyAndTheIntentCanBeConfirmedAgain(t *testing.T) {
	s := open(t, Settings{})
	for method, want := range map[string]decline{
		"pm_card_chargeDeclined":                           genericDecline,
		"pm_card_visa_chargeDeclined":                      genericDecline,
		"pm_card_chargeDeclinedInsufficientFunds":          insufficientFunds,
		"pm_card_chargeDeclinedLostCard":                   lostCard,
		"pm_card_chargeDeclinedStolenCard":                 stolenCard,
		"pm_card_chargeDeclinedExpiredCard":                expiredCard,
		"pm_card_chargeDeclinedIncorrectCvc":               incorrectCVC,
		"pm_card_chargeDeclinedProcessingError":            processingError,
		"pm_card_visa_chargeDeclinedVelocityLimitExceeded": velocityExceeded,
		"pm_card_visa_chargeDeclinedInsufficientFunds":     insufficientFunds,
	} {
		i := s.create(held(method))
		_, err := s.confirm(i.ID, "")
		e := problem(t, err, 402, want.Code)
		if e.Type != stripe.ErrorTypeCard || string(e.DeclineCode) != want.DeclineCode || e.PaymentIntent == nil || e.PaymentIntent.ID != i.ID || e.ChargeID == "" {
			t.Errorf("%s: %+v", method, e)
		}
		i = s.intent(i.ID)
		if i.Status != "requires_payment_method" || i.PaymentMethod != nil || i.LastPaymentError == nil || string(i.LastPaymentError.Code) != want.Code || i.AmountReceived != 0 {
			t.Errorf("%s: afterwards %s, %+v", method, i.Status, i.LastPaymentError)
		}
		if _, err := s.confirm(i.ID, ""); problem(t, err, 400, "payment_intent_unexpected_state").PaymentIntent == nil {
			t.Errorf("%s: without a payment method: %v", method, err)
		}
		again, err := s.sc.V1PaymentIntents.Confirm(t.Context(), i.ID, &stripe.PaymentIntentConfirmParams{PaymentMethod: stripe.String("pm_card_visa")})
		if err != nil || again.Status != "requires_capture" || again.LastPaymentError != nil {
			t.Errorf("%s: with another card: %v, %v", method, again, err)
		}
	}
}

func TestACallThatTheStateForbidsIsRefusedWithTheIntent(t *testing.T) {
	s := open(t, Settings{})
	fresh, taken, gone := s.create(held("pm_card_visa")), s.paid("pm_card_visa"), s.create(held("pm_card_visa"))
	if i, err := s.sc.V1PaymentIntents.Cancel(t.Context(), gone.ID, &stripe.PaymentIntentCancelParams{CancellationReason: stripe.String("abandoned")}); err != nil || i.Status != "canceled" || i.CancellationReason != "abandoned" {
		t.Fatal(i, err)
	}
	running := s.confirmed(s.create(held("pm_sandbox_processing")).ID)
	if running.Status != "processing" {
		t.Fatal(running.Status)
	}
	for name, err := range map[string]error{
		"capture a fresh one":   second(s.sc.V1PaymentIntents.Capture(t.Context(), fresh.ID, nil)),
		"capture a paid one":    second(s.sc.V1PaymentIntents.Capture(t.Context(), taken.ID, nil)),
		"confirm a paid one":    second(s.confirm(taken.ID, "")),
		"confirm a dead one":    second(s.confirm(gone.ID, "")),
		"confirm a running one": second(s.confirm(running.ID, "")),
		"cancel a paid one":     second(s.sc.V1PaymentIntents.Cancel(t.Context(), taken.ID, nil)),
		"cancel a dead one":     second(s.sc.V1PaymentIntents.Cancel(t.Context(), gone.ID, nil)),
		"cancel a running one":  second(s.sc.V1PaymentIntents.Cancel(t.Context(), running.ID, nil)),
	} {
		if e := problem(t, err, 400, "payment_intent_unexpected_state"); e.PaymentIntent == nil {
			t.Errorf("%s: %v", name, e)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestMoneyThatIsHeldIsReleasedByACancellationAndAfterSevenDays(t *testing.T) {
	s := open(t, Settings{})
	one, two := s.confirmed(s.create(held("pm_card_visa")).ID), s.confirmed(s.create(held("pm_card_visa")).ID)
	if i, err := s.sc.V1PaymentIntents.Cancel(t.Context(), one.ID, nil); err != nil || i.Status != "canceled" || i.AmountCapturable != 0 {
		t.Fatal(i, err)
	}
	if c := s.intent(one.ID).LatestCharge; c.Captured || !c.Refunded || c.AmountRefunded != 500 {
		t.Errorf("charge %+v", c)
	}
	s.advance(6 * 24 * time.Hour)
	if i := s.intent(two.ID); i.Status != "requires_capture" {
		t.Errorf("after six days: %s", i.Status)
	}
	s.advance(25 * time.Hour)
	if i := s.intent(two.ID); i.Status != "canceled" || i.CancellationReason != "automatic" {
		t.Errorf("after seven days: %s, %s", i.Status, i.CancellationReason)
	}
	if totals := s.server.Totals(); totals.Captured["jpy"] != 0 || totals.Refunded["jpy"] != 0 {
		t.Errorf("money that was never captured counts: %+v", totals)
	}
}

func TestASlowPaymentEndsAfterItsTimeOrWhenItIsToldTo(t *testing.T) {
	s := open(t, Settings{})
	var ids []string
	for range 3 {
		i := s.confirmed(s.create(held("pm_sandbox_processing")).ID)
		if i.Status != "processing" {
			t.Fatal(i.Status)
		}
		ids = append(ids, i.ID)
	}
	if err := s.server.Finish(ids[0], true); err != nil {
		t.Fatal(err)
	}
	if err := s.server.Finish(ids[1], false); err != nil {
		t.Fatal(err)
	}
	if err := s.server.Finish(ids[1], true); err == nil {
		t.Error("it ended twice")
	}
	if i := s.intent(ids[0]); i.Status != "succeeded" || i.AmountReceived != 500 {
		t.Errorf("%s: a slow method cannot be held", i.Status)
	}
	if i := s.intent(ids[1]); i.Status != "requires_payment_method" || i.LastPaymentError == nil {
		t.Errorf("%s", i.Status)
	}
	if i := s.intent(ids[2]); i.Status != "processing" {
		t.Errorf("%s", i.Status)
	}
	s.advance(4 * time.Minute)
	if i := s.intent(ids[2]); i.Status != "succeeded" {
		t.Errorf("after its time: %s", i.Status)
	}
}

func TestRefundsAreAtMostWhatWasCaptured(t *testing.T) {
	s := open(t, Settings{})
	i := s.paid("pm_card_visa")
	if r, err := s.refund(i.ID, 200); err != nil || r.Status != "succeeded" || r.Amount != 200 || r.PaymentIntent.ID != i.ID {
		t.Fatal(r, err)
	}
	problem(t, second(s.refund(i.ID, 301)), 400, "")
	if r, err := s.refund(i.ID, 0); err != nil || r.Amount != 300 {
		t.Fatal(r, err)
	}
	problem(t, second(s.refund(i.ID, 1)), 400, "charge_already_refunded")
	problem(t, second(s.refund(s.confirmed(s.create(held("pm_card_visa")).ID).ID, 0)), 400, "payment_intent_unexpected_state")
	problem(t, second(s.refund(s.create(held("pm_card_visa")).ID, 0)), 400, "")
	problem(t, second(s.refund("pi_nobody", 0)), 404, "resource_missing")
	if totals := s.server.Totals(); totals.Captured["jpy"] != 500 || totals.Refunded["jpy"] != 500 {
		t.Errorf("%+v", totals)
	}
}

func TestARefundCanFailAfterItHadSucceededAndBeMadeAgain(t *testing.T) {
	s := open(t, Settings{})
	i := s.paid("pm_card_refundFail")
	r, err := s.refund(i.ID, 0)
	if err != nil || r.Status != "succeeded" {
		t.Fatal(r, err)
	}
	s.advance(2 * time.Hour)
	if r, err = s.sc.V1Refunds.Retrieve(t.Context(), r.ID, nil); err != nil || r.Status != "failed" || r.FailureReason == "" {
		t.Errorf("%v, %v", r, err)
	}
	if totals := s.server.Totals(); totals.Refunded["jpy"] != 0 {
		t.Errorf("%+v", totals)
	}
	if _, err := s.refund(i.ID, 0); err != nil {
		t.Error(err)
	}
	if got := s.types(11); !slices.Contains(got, "refund.failed") {
		t.Errorf("%q", got)
	}
}

func TestRefundsThatAreNotDoneAtOnceHaveStatesOfTheirOwn(t *testing.T) {
	s := open(t, Settings{})
	r, err := s.refund(s.paid("pm_card_pendingRefund").ID, 0)
	if err != nil || r.Status != "pending" {
		t.Fatal(r, err)
	}
	s.advance(2 * time.Hour)
	if r, err = s.sc.V1Refunds.Retrieve(t.Context(), r.ID, nil); err != nil || r.Status != "succeeded" {
		t.Errorf("%v, %v", r, err)
	}
	problem(t, second(s.sc.V1Refunds.Cancel(t.Context(), r.ID, nil)), 400, "")
	i := s.paid("pm_sandbox_refund_requires_action")
	if r, err = s.refund(i.ID, 0); err != nil || r.Status != "requires_action" {
		t.Fatal(r, err)
	}
	if r, err = s.sc.V1Refunds.Cancel(t.Context(), r.ID, nil); err != nil || r.Status != "canceled" {
		t.Errorf("%v, %v", r, err)
	}
	if r, err = s.refund(i.ID, 0); err != nil {
		t.Fatal(err)
	}
	if err := s.server.FinishRefund(r.ID, "succeeded"); err != nil {
		t.Error(err)
	}
}

func TestADisputeBeginsLaterAndForbidsARefund(t *testing.T) {
	s := open(t, Settings{})
	i := s.paid("pm_card_createDispute")
	s.advance(2 * time.Hour)
	if c := s.intent(i.ID).LatestCharge; !c.Disputed {
		t.Fatal("no dispute")
	}
	problem(t, second(s.refund(i.ID, 0)), 400, "charge_disputed")
	for d, err := range s.sc.V1Disputes.List(t.Context(), &stripe.DisputeListParams{PaymentIntent: &i.ID}).All(t.Context()) {
		if err != nil || d.Reason != "fraudulent" || d.Status != "needs_response" || d.Amount != 500 {
			t.Fatal(d, err)
		}
		if err := s.server.CloseDispute(d.ID, true); err != nil {
			t.Fatal(err)
		}
		if err := s.server.CloseDispute(d.ID, false); err == nil {
			t.Error("it was closed twice")
		}
	}
	if _, err := s.refund(i.ID, 0); err != nil {
		t.Errorf("after it was won: %v", err)
	}
	if got := s.types(11); !slices.Contains(got, "charge.dispute.created") || !slices.Contains(got, "charge.dispute.closed") {
		t.Errorf("%q", got)
	}
}

func TestAnInquiryForbidsNoRefundUntilTheBankEscalatesIt(t *testing.T) {
	s := open(t, Settings{})
	refunded, escalated := s.paid("pm_card_createDisputeInquiry"), s.paid("pm_card_createDisputeInquiry")
	s.advance(2 * time.Hour)
	inquiry := func(intent string) *stripe.Dispute {
		for d, err := range s.sc.V1Disputes.List(t.Context(), &stripe.DisputeListParams{PaymentIntent: &intent}).All(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		return nil
	}
	if d := inquiry(refunded.ID); d.Status != "warning_needs_response" || !d.IsChargeRefundable {
		t.Errorf("%+v", d)
	}
	if _, err := s.refund(refunded.ID, 0); err != nil {
		t.Error(err)
	}
	if err := s.server.EscalateDispute(inquiry(refunded.ID).ID); err == nil {
		t.Error("a refunded charge is disputed")
	}
	id := inquiry(escalated.ID).ID
	if err := errors.Join(s.server.CloseDispute(id, true), s.server.EscalateDispute(id)); err != nil {
		t.Fatal(err)
	}
	if d := inquiry(escalated.ID); d.Status != "needs_response" || d.IsChargeRefundable {
		t.Errorf("%+v", d)
	}
	problem(t, second(s.refund(escalated.ID, 0)), 400, "charge_disputed")
	if got := s.types(17); !slices.Contains(got, "charge.dispute.funds_withdrawn") {
		t.Errorf("%q", got)
	}
	if err := s.server.EscalateDispute(id); err == nil {
		t.Error("it was escalated twice")
	}
}

func TestACaptureIsAtMostWhatIsHeldAndReleasesTheRest(t *testing.T) {
	s := open(t, Settings{})
	i := s.confirmed(s.create(held("pm_card_visa")).ID)
	_, err := s.sc.V1PaymentIntents.Capture(t.Context(), i.ID, &stripe.PaymentIntentCaptureParams{AmountToCapture: stripe.Int64(501)})
	problem(t, err, 400, "amount_too_large")
	i, err = s.sc.V1PaymentIntents.Capture(t.Context(), i.ID, &stripe.PaymentIntentCaptureParams{AmountToCapture: stripe.Int64(300)})
	if err != nil || i.Status != "succeeded" || i.AmountReceived != 300 || i.AmountCapturable != 0 {
		t.Errorf("%v, %v", i, err)
	}
	problem(t, second(s.refund(i.ID, 301)), 400, "")
}
