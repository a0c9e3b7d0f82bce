package refunds_test

import (
	"testing"

	"triprize/internal/domain/payprovider"
)

// A look that tells nothing does not take a refund away from the operator.
func TestAStuckRefundStaysSoWhileTheProviderIsAway(t *testing.T) {
	t.Parallel()
	for _, kind := range []payprovider.ErrorKind{payprovider.KindUnavailable, payprovider.KindUnknown, payprovider.KindLimited} {
		w := stuckWorld(t)
		w.provider.fault = func(call string) (error, bool) { return &payprovider.Error{Kind: kind, Call: call}, true }
		w.run()
		if r := w.refund(); !r.Stuck || !r.ForOperator() {
			t.Errorf("after a look that was %s: %+v", kind, r)
		}
	}
}
