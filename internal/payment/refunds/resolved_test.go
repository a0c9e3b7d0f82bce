package refunds_test

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/access"
	"triprize/internal/domain/payprovider"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/payment/refunds"
	"triprize/internal/purchase"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

var forbidden = &payprovider.Error{Kind: payprovider.KindForbidden, Message: "Expired API Key provided"}

// counting gives the world a runner whose metrics are read.
func (w *world) counting() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	w.runner = refunds.NewRunner(w.db, w.provider, refunds.Settings{Lease: time.Hour, Recheck: time.Minute}, servers.Logger(w.t), registry)
	return registry
}

// runDue runs the refund as a sweep would: it fails when nothing is due.
func (w *world) runDue() refunds.Outcome {
	w.t.Helper()
	due, err := payment.RefundAgenda.TakeDue(w.t.Context(), w.db, time.Hour, 10)
	if err != nil || len(due) != 1 || due[0].ID != w.id {
		w.t.Fatalf("due are %v, %v", due, err)
	}
	return w.run()
}

// The news came before the operator has resolved it, and no other will come: the provider is asked.
func TestWhatIsResolvedByHandIsLookedForUntilTheProviderHasAnswered(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lost   bool // the answer of the call
		first  payprovider.RefundStatus
		then   payprovider.RefundStatus
		amount string
		rings  float64
	}{
		"it has succeeded since":                {false, payprovider.RefundPending, payprovider.RefundSucceeded, "400 JPY", 1},
		"it was made, and the answer was lost":  {true, payprovider.RefundSucceeded, payprovider.RefundSucceeded, "400 JPY", 1},
		"it has failed since":                   {false, payprovider.RefundPending, payprovider.RefundFailed, "", 0},
		"it has failed, and the answer is lost": {true, payprovider.RefundFailed, payprovider.RefundFailed, "", 0},
	} {
		for _, together := range []bool{false, true} {
			w := newWorld(t)
			registry := w.counting()
			w.provider.status = c.first
			if c.lost {
				w.provider.fault = once("create", 1, errLost, false)
			}
			w.run()
			w.provider.set(c.then, "")
			w.provider.fault = func(string) (error, bool) { return forbidden, true }
			w.run() // woken by the event
			if r := w.refund(); !r.Stuck {
				t.Fatalf("%s: %+v", name, r)
			}
			if err := w.resolve(together); err != nil {
				t.Fatal(err)
			}
			for range 3 { // the key is refused still
				w.runDue()
				if r := w.expect(payment.RefundResolved, purchase.Refunded, 1); r.DueAt == nil {
					t.Fatalf("%s: it is forgotten: %+v", name, r)
				}
				w.sql(`UPDATE refunds SET due_at = clock_timestamp() WHERE id = $1`)
			}
			w.provider.fault = nil
			w.runDue()
			if r := w.expect(payment.RefundResolved, purchase.Refunded, 1); r.DueAt != nil || r.Faults != 0 || (c.rings > 0) != strings.Contains(text(r.Failure), c.amount+" too much") {
				t.Errorf("%s: %+v", name, r)
			}
			w.run() // and an event of it
			if got := paidTwice(t, registry); got != c.rings {
				t.Errorf("%s: it rings %g times", name, got)
			}
			fixture.Sound(t, w.db)
		}
	}
}

// resolve has an operator resolve the refund, alone or together with those of its campaign.
func (w *world) resolve(together bool) error {
	if !together {
		return outcome(service(w).Resolve(w.t.Context(), request(job.KindRefundResolve), access.Everything(), w.id, "operator:ops", "by bank transfer"))
	}
	r := request(job.KindRefundsResolve)
	r.CampaignID = w.refund().CampaignID
	return outcome(service(w).ResolveCampaign(w.t.Context(), r, access.Everything(), "operator:ops", "by bank transfer"))
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// Nothing was sent: there is nothing to be looked for.
func TestWhatWasNeverSentIsNotLookedForWhenItIsResolved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sql(`UPDATE refunds SET state = 'failed' WHERE id = $1`)
	if err := w.resolve(false); err != nil {
		t.Fatal(err)
	}
	if r := w.refund(); r.DueAt != nil {
		t.Errorf("it is due: %+v", r)
	}
}

// The refund of another part has listed it first, or a worker has ended before it could say so.
func TestMoneyThatIsPaidTwiceIsSaidWhoeverHasSeenItFirst(t *testing.T) {
	t.Parallel()
	w, campaignID, at := partsWorld(t)
	registry := w.counting()
	w.provider.fault = once("create", 1, errLost, false)
	two := w.cancel(campaignID, at[0], at[1])
	w.runOf(two)
	w.sql(`UPDATE refunds SET stuck = true WHERE id = $1`)
	if err := w.resolve(false); err != nil {
		t.Fatal(err)
	}
	w.provider.fault = once("create", 1, &payprovider.Error{Kind: payprovider.KindRefused, Code: "no"}, true)
	one := w.cancel(campaignID, at[2])
	w.runOf(one) // it is refused, and lists what there is
	if r := w.refund(); r.Amount != 0 || r.State != payment.RefundSucceeded || paidTwice(t, registry) != 0 {
		t.Fatalf("%+v", r)
	}
	for range 2 {
		w.runOf(two)
	}
	if r := w.refund(); paidTwice(t, registry) != 1 || !strings.Contains(text(r.Failure), "400 JPY too much") {
		t.Errorf("it rings %g times: %+v", paidTwice(t, registry), r)
	}
	fixture.Sound(t, w.db)
}
