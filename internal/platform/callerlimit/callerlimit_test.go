package callerlimit

import (
	"testing"

	"triprize/internal/domain/fault"
)

func opened(t *testing.T, l *Limit, owner string, most int) (release func()) {
	t.Helper()
	release, err := l.Acquire(owner, most)
	if err != nil {
		t.Fatal(err)
	}
	return release
}

func refused(t *testing.T, l *Limit, owner string, most int, want fault.Code) {
	t.Helper()
	if _, err := l.Acquire(owner, most); fault.CodeOf(err) != want {
		t.Errorf("one more of %s: %v, want %s", owner, err, want)
	}
}

func TestEachOwnerHasABoundAndAllTogether(t *testing.T) {
	t.Parallel()
	l := New("streams", 4)
	release := opened(t, l, "a", 2)
	opened(t, l, "a", 2)
	refused(t, l, "a", 2, fault.RateLimited)
	opened(t, l, "b", 1)
	refused(t, l, "b", 1, fault.RateLimited) // another owner may have another bound
	opened(t, l, "c", 2)
	refused(t, l, "c", 2, fault.Overloaded)
	refused(t, l, "a", 2, fault.RateLimited)
	release()
	release() // counts once
	if l.Open() != 3 {
		t.Errorf("%d are open", l.Open())
	}
	opened(t, l, "a", 2)
	refused(t, l, "d", 2, fault.Overloaded)
}

func TestAnOwnerWithNothingOpenIsForgotten(t *testing.T) {
	t.Parallel()
	l := New("streams", 3)
	first, second := opened(t, l, "a", 2), opened(t, l, "a", 2)
	first()
	if len(l.owners) != 1 {
		t.Error("forgotten with one open")
	}
	second()
	full := New("streams", 0)
	refused(t, full, "b", 2, fault.Overloaded)
	if len(l.owners) != 0 || len(full.owners) != 0 {
		t.Errorf("remembered: %v, %v", l.owners, full.owners)
	}
}
