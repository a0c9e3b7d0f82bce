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

// The provider tells what there is, so a person decides nothing any more: what is under way is the worker's.
func TestARefundIsStuckNoMoreWhenTheProviderHasAnswered(t *testing.T) {
	t.Parallel()
	w := stuckWorld(t)
	w.provider.fault = lost
	w.run()
	if r := w.refund(); r.Stuck || r.ForOperator() || r.DueAt == nil {
		t.Errorf("%+v", r)
	}
}
