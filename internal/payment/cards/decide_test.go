package cards

import (
	"fmt"
	"testing"

	"triprize/internal/domain/payprovider"
	"triprize/internal/payment"
)

var allPhases = []payment.Phase{payment.Reserved, payment.Creating, payment.Confirming, payment.Action, payment.CardDeclined, payment.Processing, payment.Capturing,
	payment.Captured, payment.Expiring, payment.Late, payment.Ended, payment.Settled, payment.RefundDue, payment.Cancelled}

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
		payment.Settled:   all("release"),
		payment.RefundDue: all("release"),
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
		k.p.Tries = payment.MostTries
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

// TestNoCombinationOfFactsBreaksARule goes through all of them.
func TestNoCombinationOfFactsBreaksARule(t *testing.T) {
	t.Parallel()
	bools := []bool{false, true}
	n := 0
	for _, phase := range allPhases {
		for _, status := range allStatuses {
			for _, refused := range []move{"", create, fetch, confirm, capture, cancel} {
				for bits := range 1 << 9 {
					bit := func(i int) bool { return bools[bits>>i&1] }
					f := facts{phase: phase, status: status, refused: refused, over: bit(0), intent: bit(1), oldKey: bit(2), uncancellable: bit(3), page: bit(4), shown: bit(5),
						another: bit(6), last: bit(7), confirmed: bit(8)}
					if f.last && !f.another || !f.intent && phase != payment.Reserved && phase != payment.Creating && phase != payment.Expiring && phase != payment.Ended && phase != payment.Cancelled {
						continue // the schema does not allow it
					}
					n++
					m, ending := f.next()
					if broken := ruleBrokenBy(f, m, ending); broken != "" {
						t.Errorf("%+v: %s: %s", f, said(m, ending), broken)
					}
				}
			}
		}
	}
	if n < 190_000 {
		t.Errorf("only %d combinations", n)
	}
}

func ruleBrokenBy(f facts, m move, ending payment.Ending) string {
	afterConfirm := f.phase != payment.Reserved && f.phase != payment.Creating
	needsIntent := map[move]bool{fetch: true, awaitMethod: true, confirm: true, capture: true, cancel: true, show: true, slow: true, startCapture: true, keepMoney: true}
	switch {
	case m == "":
		return "there is no move"
	case (m == giveUp) != (ending != "" && m != end):
		return "who gives up says why"
	case needsIntent[m] && !f.intent:
		return "there is no intent"
	case m == confirm && f.phase != payment.Confirming:
		return "only the phase confirming confirms"
	case m == confirm && f.status != payprovider.RequiresConfirmation && !(f.another && (f.status == payprovider.RequiresPaymentMethod || f.status == payprovider.RequiresAction)):
		return "a worker that comes anew asks first, and no answer was about the method"
	case m == confirm && f.confirmed && f.status != payprovider.RequiresConfirmation:
		return "a method is confirmed once in a run"
	case m == awaitMethod && (f.over || f.last || f.status != payprovider.RequiresPaymentMethod && f.status != payprovider.RequiresAction):
		return "no other method may come"
	case m == confirm && f.over:
		return "nothing is confirmed when the time is over"
	case (m == newKey || m == create || m == confirm) && f.over:
		return "nothing is begun when the time is over"
	case m == startCapture && f.over:
		return "the reservation does not stand any more"
	case m == capture && (f.phase != payment.Capturing || f.status != payprovider.RequiresCapture):
		return "only what is authorized is captured, and only in capturing"
	case (m == cancel || m == uncancellable) && f.phase != payment.Expiring && f.phase != payment.Late && f.phase != payment.Cancelled:
		return "only what was given up is cancelled"
	case m == keepMoney && f.status != payprovider.Succeeded:
		return "the provider does not have the money"
	case f.status == payprovider.Succeeded && f.intent && afterConfirm && m != keepMoney && m != finalize && m != release:
		return "money is always taken notice of"
	case m == release && f.phase == payment.Cancelled && f.intent && f.status != payprovider.Canceled:
		return "money could still come"
	case m == end && f.intent && f.status != payprovider.Canceled:
		return "only the provider ends an intent"
	case f.phase == payment.Capturing && f.over && m == giveUp && ending == payment.Expired:
		return "the deadline does not count when the money is being taken"
	case m == finalize && f.phase != payment.Captured && f.phase != payment.Ended && !(f.phase == payment.Expiring && f.uncancellable && f.over):
		return "its end is not known"
	case f.refused != "" && m == f.refused && f.status == "" && m != fetch && f.phase != payment.Confirming:
		return "a refused call is not made again without a look"
	}
	return ""
}
