package refunds_test

import (
	"testing"

	"triprize/internal/platform/stripe"
)

// A look that tells nothing does not take a refund away from the operator.
func TestAStuckRefundStaysSoWhileTheProviderIsAway(t *testing.T) {
	t.Parallel()
	for _, kind := range []stripe.ErrorKind{stripe.KindUnavailable, stripe.KindUnknown, stripe.KindLimited} {
		w := stuckWorld(t)
		w.provider.fault = func(call string) (error, bool) { return &stripe.Error{Kind: kind, Call: call}, true }
		w.run()
		if r := w.refund(); !r.Stuck || !r.ForOperator() {
			t.Errorf("after a look that was %s: %+v", kind, r)
		}
	}
}
