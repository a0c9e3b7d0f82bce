package cards

import (
	"triprize/internal/domain/payprovider"
	"triprize/internal/payment"
	"triprize/internal/platform/postgres"
)

// move is what is to be done next with a payment.
type move string

const (
	newKey        move = "new-key"       // store creating with another key: the intent of an old one, if there is one, is never confirmed
	create        move = "create"        // call: create the intent under the stored key; then store its id
	fetch         move = "fetch"         // call: how is the intent?
	confirm       move = "confirm"       // call: try to pay
	show          move = "show"          // store action: the buyer must authenticate; wait
	awaitMethod   move = "await-method"  // store declined: the buyer may bring another payment method; wait
	slow          move = "slow"          // store processing; wait
	startCapture  move = "start-capture" // store capturing, if the reservation still stands
	capture       move = "capture"       // call: take the money
	storeCapture  move = "captured"      // store captured
	giveUp        move = "give-up"       // store expiring, or ended if there is no intent
	cancel        move = "cancel"        // call: end the intent
	uncancellable move = "uncancellable" // store that the provider will not cancel it
	end           move = "end"           // store ended
	settle        move = "finalize"      // a transaction of the sale decides
	wait          move = "wait"          // release it, and check again later
	review        move = "review"        // call: is it disputed, or refunded by others? Then release it
	release       move = "release"       // release it: there is nothing to do until an event comes
	unexpected    move = "unexpected"    // the provider's answer cannot be: log an error, and check again slowly
)

// known is what the next move depends on. What the provider has said is of this run, and is not
// remembered from one run to the next: another worker may have gone on meanwhile.
type known struct {
	p         payment.Payment    // as it is stored
	intent    payprovider.Intent // as the provider has reported it last; no status: not known, or may have changed
	refused   move               // the last call that the provider has refused, and will refuse again; empty: none
	confirmed bool               // the payment method was confirmed, with whatever answer
}

// next decides the next move, and why a payment is given up. It does no I/O.
//
// Three rules stand behind it. An intent is confirmed only in phase confirming, which
// means that its id is stored. From there on only what the provider says ends a payment,
// and it is asked first whenever a worker comes anew. Once capturing is stored, the money
// is taken; the deadline counts no more. A decline is an end only when its buyer brings no
// other payment method.
func (f *known) next() (move, payment.Ending) {
	switch f.p.Phase {
	case payment.Reserved, payment.Creating:
		return f.beforeIntent()
	case payment.Confirming, payment.Action, payment.CardDeclined, payment.Processing:
		return f.beforeCapture()
	case payment.Capturing:
		return f.inCapture()
	case payment.Expiring:
		return f.expiring(), ""
	case payment.Late:
		return f.unwanted(end), ""
	case payment.Cancelled:
		if f.p.IntentID == nil {
			return release, ""
		}
		return f.unwanted(release), ""
	case payment.Captured, payment.Ended:
		return settle, ""
	case payment.Settled, payment.RefundDue:
		if f.p.PaidOutOfBand() {
			return f.unwanted(release), ""
		}
		return review, "" // an event has woken it
	}
	return unexpected, ""
}

func (f *known) beforeIntent() (move, payment.Ending) {
	switch {
	case f.refused == create:
		return giveUp, payment.Refused
	case f.intent.Status == payprovider.RequiresPaymentMethod:
		return giveUp, payment.Declined
	case f.p.Over:
		return giveUp, payment.Expired
	case f.p.Phase == payment.Reserved, f.p.KeyAge > payprovider.KeyLifetime: // the claim has stored the first key of most
		return newKey, ""
	}
	return create, ""
}

func (f *known) beforeCapture() (move, payment.Ending) {
	switch f.intent.Status {
	case "":
		return fetch, ""
	case payprovider.Succeeded: // a method that is captured when it is confirmed
		return storeCapture, ""
	case payprovider.Canceled:
		return end, payment.Expired
	case payprovider.RequiresPaymentMethod:
		return f.afterDecline()
	}
	switch {
	case f.intent.Status == payprovider.RequiresAction && f.anotherFailed():
		return f.afterDecline()
	case f.p.Over:
		return giveUp, payment.Expired
	case f.intent.Status == payprovider.RequiresCapture:
		return startCapture, ""
	case f.intent.Status == payprovider.Processing && f.p.Phase == payment.Processing:
		return wait, ""
	case f.intent.Status == payprovider.Processing:
		return slow, ""
	case f.intent.Status == payprovider.RequiresAction && f.intent.ActionURL == "": // no bank has declined it, but nobody could ever go on
		return giveUp, payment.Refused
	case f.intent.Status == payprovider.RequiresAction && f.p.Phase == payment.Action && postgres.ValueOf(f.p.NextAction) == f.intent.ActionURL:
		return wait, ""
	case f.intent.Status == payprovider.RequiresAction:
		return show, ""
	case f.intent.Status == payprovider.RequiresConfirmation && f.refused == confirm:
		return giveUp, payment.Refused
	case f.intent.Status == payprovider.RequiresConfirmation && f.p.Phase == payment.Confirming:
		return confirm, ""
	}
	return unexpected, ""
}

// toConfirm reports whether another payment method is still to be confirmed. The intent then
// reports the one before. It may have been confirmed already, by a worker that
// could not store the answer: under the same key the same answer comes again.
func (f *known) toConfirm() bool {
	return f.p.Phase == payment.Confirming && f.p.Tries > 0 && !f.confirmed
}

// anotherFailed reports whether an authentication is awaited that is not for the other payment
// method, or that nobody can do: it is still to be confirmed, was refused, or has no page.
func (f *known) anotherFailed() bool {
	return f.p.Phase == payment.CardDeclined || f.toConfirm() || f.p.Tries > 0 && (f.refused == confirm || f.intent.ActionURL == "")
}

// afterDecline decides about an intent that needs another payment method, or just this one.
func (f *known) afterDecline() (move, payment.Ending) {
	switch {
	case f.p.Over && f.toConfirm():
		return giveUp, payment.Expired
	case f.p.Over:
		return giveUp, payment.Declined
	case f.toConfirm():
		return confirm, ""
	case f.p.Phase == payment.CardDeclined:
		return wait, ""
	case f.p.Tries >= payment.MaxTries:
		return giveUp, payment.Declined
	}
	return awaitMethod, ""
}

func (f *known) inCapture() (move, payment.Ending) {
	switch f.intent.Status {
	case "":
		return fetch, ""
	case payprovider.Succeeded:
		return storeCapture, ""
	case payprovider.Canceled: // the authorization has ended, or others have ended it at the provider
		return end, payment.Expired
	case payprovider.RequiresPaymentMethod: // the card was declined after all
		return giveUp, payment.Declined
	case payprovider.Processing:
		return wait, ""
	case payprovider.RequiresCapture:
		if f.refused == capture {
			return unexpected, ""
		}
		return capture, ""
	}
	return unexpected, ""
}

func (f *known) expiring() move {
	switch {
	case f.p.IntentID == nil:
		return end // perhaps there is one that nobody knows; then nobody can confirm it
	case f.intent.Status == "" && (f.p.Uncancellable || f.refused == cancel):
		return fetch
	case f.intent.Status == "":
		return cancel
	case f.intent.Status == payprovider.Canceled:
		return end
	case f.intent.Status == payprovider.Succeeded:
		return storeCapture
	case f.intent.Status == payprovider.Processing && f.p.Uncancellable && f.p.Over:
		return settle
	case f.intent.Status == payprovider.Processing && f.p.Uncancellable:
		return wait
	case f.intent.Status == payprovider.Processing && f.refused == cancel:
		return uncancellable
	case f.refused == cancel:
		return unexpected
	}
	return cancel
}

// unwanted is for payments whose positions are free again: money on them would be given
// back. Of one that was paid out of band an operator decides: it would be paid twice. ended is the
// move when the intent has ended.
func (f *known) unwanted(ended move) move {
	switch {
	case f.intent.Status == "":
		return fetch
	case f.intent.Status == payprovider.Canceled:
		return ended
	case f.intent.Status == payprovider.Succeeded && f.p.PaidOutOfBand():
		return unexpected
	case f.intent.Status == payprovider.Succeeded:
		return storeCapture
	case f.intent.Status == payprovider.Processing && (f.p.Phase == payment.Late || f.refused == cancel):
		return wait
	case f.refused == cancel:
		return unexpected
	}
	return cancel
}
