package httpapi

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/resource"
)

// However many anonymous callers read proofs slowly, from however many addresses, half of the
// places are left to who has a key.
func TestAnonymousCallersLeaveHalfOfTheProofsToThoseWithAKey(t *testing.T) {
	t.Parallel()
	p := newProofs(nil, 4, prometheus.NewRegistry())
	var leave []func()
	for _, address := range []string{"a", "b", "c", "d"} {
		release, err := p.enter(call.Caller{Role: resource.Anonymous, Client: address}, 2)
		if len(leave) < 2 {
			if err != nil {
				t.Fatal(address, err)
			}
			leave = append(leave, release)
		} else if fault.CodeOf(err) != fault.Overloaded {
			t.Errorf("a further anonymous caller: %v", err)
		}
	}
	for range 2 {
		if _, err := p.enter(call.Caller{Role: resource.Operator, Client: "ops"}, 2); err != nil {
			t.Errorf("who has a key: %v", err)
		}
	}
	leave[0]()
	if _, err := p.enter(call.Caller{Role: resource.Anonymous, Client: "e"}, 2); err != nil {
		t.Errorf("when one is gone: %v", err)
	}
}
