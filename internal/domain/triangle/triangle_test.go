package triangle

import "testing"

func TestAllYieldsEveryPositionOnceInOrder(t *testing.T) {
	for _, base := range []int{MinBaseLength, 20, 50} {
		n, last := 0, Position{}
		for p := range All(base) {
			if !p.In(base) || !last.Before(p) {
				t.Fatalf("base %d: %v after %v", base, p, last)
			}
			n, last = n+1, p
		}
		if n != Count(base) {
			t.Errorf("base %d: %d positions, want %d", base, n, Count(base))
		}
	}
	if Count(20) != 210 || Count(50) != 1275 {
		t.Error("the documents count 210 positions for 20 layers and 1,275 for 50")
	}
}

func TestInRefusesWhatLiesOutside(t *testing.T) {
	for _, p := range []Position{{0, 1}, {1, 0}, {1, 2}, {4, 1}, {-1, -1}, {3, 4}} {
		if p.In(3) {
			t.Errorf("%v lies in a triangle of 3", p)
		}
	}
}
