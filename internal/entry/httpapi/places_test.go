package httpapi

import (
	"testing"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/resource"
)

// However many anonymous callers read proofs slowly or follow draws, from however many
// addresses, half of the places are left to callers with a key.
func TestAnonymousCallersLeaveHalfOfThePlacesToThoseWithAKey(t *testing.T) {
	t.Parallel()
	p := newPlaces("proofs", 4)
	var leave []func()
	for _, address := range []string{"a", "b", "c", "d"} {
		release, err := p.enter(call.Caller{Role: resource.Anonymous, Client: address}, 2)
		if len(leave) < 2 {
			if err != nil {
				t.Fatal(address, err)
			}
			leave = append(leave, release)
		} else if fault.CodeOf(err) != fault.RateLimited {
			t.Errorf("a further anonymous caller: %v", err)
		}
	}
	for range 2 {
		if _, err := p.enter(call.Caller{Role: resource.Operator, Client: "ops"}, 2); err != nil {
			t.Errorf("a caller with a key: %v", err)
		}
	}
	leave[0]()
	if _, err := p.enter(call.Caller{Role: resource.Anonymous, Client: "e"}, 2); err != nil {
		t.Errorf("when one is gone: %v", err)
	}
}
