package httpapi

import (
	"net/url"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/platform/config"
	"triprize/internal/service/sale"
	"triprize/internal/store/purchase"
)

// errNoCards refuses every request that needs a payment provider, where there is none.
var errNoCards = fault.New(fault.CardsNotAccepted, "cards are not accepted here: this installation has no payment provider (payments.stripe.key)")

// paymentOf checks how a purchase is to be paid. A card has a payment method of the
// provider and no reference of the app; with the others it is the other way round.
//
// Without a page to return to, a card that must be authenticated could only be declined.
func paymentOf(body contract.PaymentDraft, defaults config.Payments) (sale.Payment, error) {
	p := sale.Payment{Method: purchase.PaymentMethod(body.Method), Reference: body.Reference, PaymentMethod: body.PaymentMethod, ReturnURL: body.ReturnURL}
	var faults []fault.Field
	wrong := func(field, detail string) {
		faults = append(faults, fault.Field{Pointer: "/payment/" + field, Detail: detail})
	}
	if p.Method == purchase.Card {
		if p.PaymentMethod == "" {
			wrong("payment_method", "is required with the method card: the id of the buyer's payment method at the provider, pm_…")
		}
		if p.Reference != "" {
			wrong("reference", "does not go with the method card: its reference is the id that the provider gives the payment")
		}
		if p.ReturnURL != "" && !isPage(p.ReturnURL) {
			wrong("return_url", "must be the address of a page: https://…")
		}
		if p.ReturnURL == "" && defaults.ReturnURL == "" && defaults.Stripe.Enabled() {
			wrong("return_url", "is required, as this installation has no page to return to (payments.return_url): banks send buyers there")
		}
	} else {
		if p.PaymentMethod != "" {
			wrong("payment_method", "goes with the method card only")
		}
		if p.ReturnURL != "" {
			wrong("return_url", "goes with the method card only")
		}
	}
	if len(faults) > 0 {
		return p, fault.Invalid(faults...)
	}
	return p, nil
}

// isPage tells whether a text is the address of a page that a browser can be sent to.
func isPage(text string) bool {
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Hostname() != "" && u.User == nil
}
