package cards

import (
	"triprize/internal/domain/payprovider"
	"triprize/internal/payment"
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
	keepMoney     move = "captured"      // store captured
	giveUp        move = "give-up"       // store expiring, or ended if there is no intent
	cancel        move = "cancel"        // call: end the intent
	uncancellable move = "uncancellable" // store that the provider will not cancel it
	end           move = "end"           // store ended
	finalize      move = "finalize"      // a transaction of the sale decides
	wait          move = "wait"          // release it, and check again later
	release       move = "release"       // release it: there is nothing to do until an event comes
	unexpected    move = "unexpected"    // the provider's answer cannot be: log an error, and check again slowly
)

// facts is what the next move depends on.
type facts struct {
	phase         payment.Phase
	over          bool // the deadline of the reservation
	intent        bool // its id is stored
	oldKey        bool // the key of the intent may be forgotten at the provider
	uncancellable bool // the provider would not cancel it, as was stored
	another       bool // its payment method is not the first one
	last          bool // no further one may come

	// From the provider, in this run. Nothing of it is remembered from one run to the
	// next: another worker may have gone on meanwhile.
	status    payprovider.IntentStatus // empty: not known, or may have changed
	confirmed bool                     // the payment method was confirmed, with whatever answer
	page      bool                     // where the buyer can authenticate
	shown     bool                     // that page is stored
	refused   move                     // the last call that the provider has refused, and will refuse again; empty: none
}

// next decides the next move, and why a payment is given up. It does no I/O.
//
// Three rules stand behind it. An intent is confirmed only in phase confirming, which
// means that its id is stored. From there on only what the provider says ends a payment,
// and it is asked first whenever a worker comes anew. Once capturing is stored, the money
// is taken; the deadline counts no more. A decline is an end only when its buyer brings no
// other payment method.
func next(f facts) (move, payment.Ending) {
	switch f.phase {
	case payment.Reserved, payment.Creating:
		return beforeIntent(f)
	case payment.Confirming, payment.Action, payment.CardDeclined, payment.Processing:
		return beforeCapture(f)
	case payment.Capturing:
		return inCapture(f)
	case payment.Expiring:
		return expiring(f), ""
	case payment.Late:
		return unwanted(f, end), ""
	case payment.Cancelled:
		if !f.intent {
			return release, ""
		}
		return unwanted(f, release), ""
	case payment.Captured, payment.Ended:
		return finalize, ""
	case payment.Settled, payment.RefundDue:
		return release, ""
	}
	return unexpected, ""
}

func beforeIntent(f facts) (move, payment.Ending) {
	switch {
	case f.refused == create:
		return giveUp, payment.Refused
	case f.status == payprovider.RequiresPaymentMethod:
		return giveUp, payment.Declined
	case f.over:
		return giveUp, payment.Expired
	case f.phase == payment.Reserved, f.oldKey: // the claim has stored the first key of most
		return newKey, ""
	}
	return create, ""
}

func beforeCapture(f facts) (move, payment.Ending) {
	switch f.status {
	case "":
		return fetch, ""
	case payprovider.Succeeded: // a method that is captured when it is confirmed
		return keepMoney, ""
	case payprovider.Canceled:
		return end, payment.Expired
	case payprovider.RequiresPaymentMethod:
		return afterDecline(f)
	}
	switch {
	case f.status == payprovider.RequiresAction && f.anotherFailed():
		return afterDecline(f)
	case f.over:
		return giveUp, payment.Expired
	case f.status == payprovider.RequiresCapture:
		return startCapture, ""
	case f.status == payprovider.Processing && f.phase == payment.Processing:
		return wait, ""
	case f.status == payprovider.Processing:
		return slow, ""
	case f.status == payprovider.RequiresAction && !f.page: // no bank has declined it, but nobody could ever go on
		return giveUp, payment.Refused
	case f.status == payprovider.RequiresAction && f.shown:
		return wait, ""
	case f.status == payprovider.RequiresAction:
		return show, ""
	case f.status == payprovider.RequiresConfirmation && f.refused == confirm:
		return giveUp, payment.Refused
	case f.status == payprovider.RequiresConfirmation && f.phase == payment.Confirming:
		return confirm, ""
	}
	return unexpected, ""
}

// toConfirm reports whether another payment method is still to be confirmed. The intent then
// reports the one before. It may have been confirmed already, by a worker that
// could not store the answer: under the same key the same answer comes again.
func (f facts) toConfirm() bool {
	return f.phase == payment.Confirming && f.another && !f.confirmed
}

// anotherFailed reports whether an authentication is awaited that is not for the other payment
// method, or that nobody can do: it is still to be confirmed, was refused, or has no page.
func (f facts) anotherFailed() bool {
	return f.phase == payment.CardDeclined || f.toConfirm() || f.another && (f.refused == confirm || !f.page)
}

// afterDecline decides about an intent that needs another payment method, or just this one.
func afterDecline(f facts) (move, payment.Ending) {
	switch {
	case f.over && f.toConfirm():
		return giveUp, payment.Expired
	case f.over:
		return giveUp, payment.Declined
	case f.toConfirm():
		return confirm, ""
	case f.phase == payment.CardDeclined:
		return wait, ""
	case f.last:
		return giveUp, payment.Declined
	}
	return awaitMethod, ""
}

func inCapture(f facts) (move, payment.Ending) {
	switch f.status {
	case "":
		return fetch, ""
	case payprovider.Succeeded:
		return keepMoney, ""
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

func expiring(f facts) move {
	switch {
	case !f.intent:
		return end // perhaps there is one that nobody knows; then nobody can confirm it
	case f.status == "" && (f.uncancellable || f.refused == cancel):
		return fetch
	case f.status == "":
		return cancel
	case f.status == payprovider.Canceled:
		return end
	case f.status == payprovider.Succeeded:
		return keepMoney
	case f.status == payprovider.Processing && f.uncancellable && f.over:
		return finalize
	case f.status == payprovider.Processing && f.uncancellable:
		return wait
	case f.status == payprovider.Processing && f.refused == cancel:
		return uncancellable
	case f.refused == cancel:
		return unexpected
	}
	return cancel
}

// unwanted is for payments whose positions are free again: money on them would be given
// back. ended is the move when the intent has ended.
func unwanted(f facts, ended move) move {
	switch {
	case f.status == "":
		return fetch
	case f.status == payprovider.Canceled:
		return ended
	case f.status == payprovider.Succeeded:
		return keepMoney
	case f.status == payprovider.Processing && (f.phase == payment.Late || f.refused == cancel):
		return wait
	case f.refused == cancel:
		return unexpected
	}
	return cancel
}
