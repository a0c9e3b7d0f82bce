package cards

import (
	"fmt"
	"testing"

	"triprize/internal/domain/payprovider"
	"triprize/internal/payment"
)

var allStatuses = []payprovider.IntentStatus{"", payprovider.RequiresPaymentMethod, payprovider.RequiresConfirmation, payprovider.RequiresAction, payprovider.Processing,
	payprovider.RequiresCapture, payprovider.Canceled, payprovider.Succeeded, "a_status_of_tomorrow"}

// TestEveryPhaseAndStatusHasItsMove is the table of decisions: an intent is stored, the
// buyer has a page that is not stored yet, no call was refused. The first move is before
// the deadline, the second one after it.
func TestEveryPhaseAndStatusHasItsMove(t *testing.T) {
	t.Parallel()
	all := func(m string) []string {
		row := make([]string, len(allStatuses))
		for i := range row {
			row[i] = m
		}
		return row
	}
	//                             unknown, requires_payment_method, requires_confirmation, requires_action, processing, requires_capture, canceled, succeeded, another
	table := map[payment.Phase][]string{
		payment.Confirming: {"fetch", "await-method|give-up declined", "confirm|give-up expired", "show|give-up expired", "slow|give-up expired",
			"start-capture|give-up expired", "end expired", "captured", "unexpected|give-up expired"},
		payment.Action: {"fetch", "await-method|give-up declined", "unexpected|give-up expired", "show|give-up expired", "slow|give-up expired",
			"start-capture|give-up expired", "end expired", "captured", "unexpected|give-up expired"},
		payment.CardDeclined: {"fetch", "wait|give-up declined", "unexpected|give-up expired", "wait|give-up declined", "slow|give-up expired",
			"start-capture|give-up expired", "end expired", "captured", "unexpected|give-up expired"},
		payment.Processing: {"fetch", "await-method|give-up declined", "unexpected|give-up expired", "show|give-up expired", "wait|give-up expired",
			"start-capture|give-up expired", "end expired", "captured", "unexpected|give-up expired"},
		payment.Capturing: {"fetch", "give-up declined", "unexpected", "unexpected", "wait", "capture", "end expired", "captured", "unexpected"},
		payment.Captured:  all("finalize"),
		payment.Expiring:  {"cancel", "cancel", "cancel", "cancel", "cancel", "cancel", "end", "captured", "cancel"},
		payment.Late:      {"fetch", "cancel", "cancel", "cancel", "wait", "cancel", "end", "captured", "cancel"},
		payment.Ended:     all("finalize"),
		payment.Settled:   all("review"),
		payment.RefundDue: all("review"),
		payment.Cancelled: {"fetch", "cancel", "cancel", "cancel", "cancel", "cancel", "release", "captured", "cancel"},
	}
	for phase, row := range table {
		for i, status := range allStatuses {
			for _, over := range []bool{false, true} {
				got := said(facts{phase: phase, intent: true, status: status, over: over, page: true}.next())
				want := row[i]
				for j, c := range want {
					if c == '|' {
						if want = want[:j]; over {
							want = row[i][j+1:]
						}
						break
					}
				}
				if got != want {
					t.Errorf("%s, %q, over %t: %s, want %s", phase, status, over, got, want)
				}
			}
		}
	}
	for _, c := range []struct {
		f    facts
		want string
	}{
		{facts{phase: payment.Reserved}, "new-key"},
		{facts{phase: payment.Reserved, over: true}, "give-up expired"},
		{facts{phase: payment.Creating}, "create"},
		{facts{phase: payment.Creating, oldKey: true}, "new-key"},
		{facts{phase: payment.Creating, over: true, oldKey: true}, "give-up expired"},
		{facts{phase: payment.Creating, refused: create}, "give-up refused"},
		{facts{phase: payment.Creating, status: payprovider.RequiresPaymentMethod}, "give-up declined"},
		{facts{phase: payment.Confirming, intent: true, status: payprovider.RequiresConfirmation, refused: confirm}, "give-up refused"},
		{facts{phase: payment.Confirming, intent: true, status: payprovider.RequiresAction}, "give-up refused"},               // no page
		{facts{phase: payment.Confirming, intent: true, another: true, status: payprovider.RequiresPaymentMethod}, "confirm"}, // what it says is about the method before
		{facts{phase: payment.Confirming, intent: true, another: true, status: payprovider.RequiresAction, page: true}, "confirm"},
		{facts{phase: payment.Confirming, intent: true, another: true, status: payprovider.RequiresPaymentMethod, over: true}, "give-up expired"},
		{facts{phase: payment.Confirming, intent: true, another: true, confirmed: true, status: payprovider.RequiresPaymentMethod}, "await-method"},
		{facts{phase: payment.Confirming, intent: true, another: true, confirmed: true, status: payprovider.RequiresAction, page: true}, "show"},
		{facts{phase: payment.Confirming, intent: true, another: true, confirmed: true, last: true, status: payprovider.RequiresPaymentMethod}, "give-up declined"},
		{facts{phase: payment.Confirming, intent: true, another: true, confirmed: true, refused: confirm, status: payprovider.RequiresAction, page: true}, "await-method"}, // the page is of the method before
		{facts{phase: payment.Confirming, intent: true, another: true, confirmed: true, status: payprovider.RequiresAction}, "await-method"},                               // there is no page
		{facts{phase: payment.Confirming, intent: true, another: true, confirmed: true, last: true, status: payprovider.RequiresAction}, "give-up declined"},
		{facts{phase: payment.Action, intent: true, another: true, last: true, status: payprovider.RequiresPaymentMethod}, "give-up declined"},
		{facts{phase: payment.Action, intent: true, status: payprovider.RequiresAction, page: true, shown: true}, "wait"},
		{facts{phase: payment.Capturing, intent: true, status: payprovider.RequiresCapture, refused: capture}, "unexpected"},
		{facts{phase: payment.Expiring}, "end"},
		{facts{phase: payment.Expiring, intent: true, refused: cancel}, "fetch"},
		{facts{phase: payment.Expiring, intent: true, uncancellable: true}, "fetch"},
		{facts{phase: payment.Expiring, intent: true, status: payprovider.Processing, refused: cancel}, "uncancellable"},
		{facts{phase: payment.Expiring, intent: true, status: payprovider.Processing, uncancellable: true}, "wait"},
		{facts{phase: payment.Expiring, intent: true, status: payprovider.Processing, uncancellable: true, over: true}, "finalize"},
		{facts{phase: payment.Expiring, intent: true, status: payprovider.RequiresPaymentMethod, uncancellable: true}, "cancel"},
		{facts{phase: payment.Expiring, intent: true, status: payprovider.RequiresCapture, refused: cancel}, "unexpected"},
		{facts{phase: payment.Late, intent: true, status: payprovider.RequiresCapture, refused: cancel}, "unexpected"},
		{facts{phase: payment.Cancelled}, "release"},
		{facts{phase: payment.Cancelled, intent: true, status: payprovider.Processing, refused: cancel}, "wait"},
		{facts{phase: "of tomorrow"}, "unexpected"},
	} {
		if got := said(c.f.next()); got != c.want {
			t.Errorf("%+v: %s, want %s", c.f, got, c.want)
		}
	}
}

// facts are what the table says of a payment and its intent.
type facts struct {
	phase   payment.Phase
	status  payprovider.IntentStatus
	refused move

	over, intent, oldKey, uncancellable, another, last, confirmed, page, shown bool
}

func (f facts) next() (move, payment.Ending) {
	k := known{p: payment.Payment{Phase: f.phase, Over: f.over, Uncancellable: f.uncancellable}, intent: payprovider.Intent{Status: f.status}, refused: f.refused, confirmed: f.confirmed}
	if f.intent {
		k.p.IntentID = new(string)
	}
	if f.oldKey {
		k.p.KeyAge = payprovider.KeyLifetime + 1
	}
	if f.another {
		k.p.Tries = 1
	}
	if f.last {
		k.p.Tries = payment.MaxTries
	}
	if f.page {
		k.intent.ActionURL = "https://bank.example"
	}
	if f.shown {
		k.p.NextAction = &k.intent.ActionURL
	}
	return k.next()
}

func said(m move, ending payment.Ending) string {
	if ending == "" {
		return string(m)
	}
	return fmt.Sprintf("%s %s", m, ending)
}
