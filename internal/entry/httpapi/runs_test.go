package httpapi

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/inventory"
	"triprize/internal/job"
)

func TestTheSmallestQuantityThatFoundNoRunIsRememberedForASecond(t *testing.T) {
	t.Parallel()
	n, now := newNoRuns(), time.Now()
	n.now = func() time.Time { return now }
	one, other := uuid.New(), uuid.New()
	none := &job.Problem{Code: fault.NoneAvailable, ForAll: true}
	beside := func(layer, quantity int) inventory.Selection {
		return inventory.Selection{Layer: layer, Quantity: quantity, Adjacent: true}
	}
	n.learn(one, beside(2, 4), none)
	n.learn(one, beside(2, 3), none)
	n.learn(one, beside(2, 5), none)                                    // says no more
	n.learn(one, beside(3, 2), &job.Problem{Code: fault.NoneAvailable}) // what its user must avoid
	n.learn(one, beside(3, 2), nil)
	n.learn(one, inventory.Selection{Layer: 3, Quantity: 2}, none)
	n.learn(other, beside(0, 6), none)
	for _, c := range []struct {
		campaign uuid.UUID
		sel      inventory.Selection
		refused  bool
	}{
		{one, beside(2, 2), false}, {one, beside(2, 3), true}, {one, beside(2, 9), true}, {one, beside(3, 3), false}, {one, beside(0, 3), false},
		{one, inventory.Selection{Layer: 2, Quantity: 3}, false}, {other, beside(2, 3), false},
		{other, beside(0, 5), false}, {other, beside(0, 6), true}, {other, beside(7, 6), true}, {other, beside(7, 5), false},
	} {
		if err := n.refusal(c.campaign, c.sel); (err != nil) != c.refused || c.refused && fault.CodeOf(err) != fault.NoneAvailable {
			t.Errorf("%+v: %v", c, err)
		}
	}
	now = now.Add(time.Second)
	if err := n.refusal(one, beside(2, 3)); err != nil {
		t.Errorf("a second later: %v", err)
	}
	n.learn(one, beside(2, 5), none)
	if n.refusal(one, beside(2, 4)) != nil || n.refusal(one, beside(2, 5)) == nil {
		t.Error("what is over still counts")
	}
	for range 2 * mostRefused {
		n.learn(uuid.New(), beside(1, 2), none)
	}
	if n.known.Len() != mostRefused {
		t.Errorf("%d pools are remembered", n.known.Len())
	}
}
