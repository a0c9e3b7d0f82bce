package fairdraw

import (
	"math"
	"testing"
)

// A layer of six positions and two prizes has 30 outcomes. Over fixed seeds, not random ones,
// each must come as often: no run of this test differs from another.
const (
	inLayerSix = 6
	outcomes   = inLayerSix * (inLayerSix - 1)
	selections = 30_000
	// The 99.9 % point of chi-square with 29 degrees of freedom.
	atMost = 58.30
)

// chiSquare repeats the selection with the indexes of each seed's stream, and returns how
// far its outcomes are from uniform.
func chiSquare(indexes func(*Stream) Indexes) float64 {
	var sold []SoldLine
	for column := 1; column <= inLayerSix; column++ {
		sold = append(sold, SoldLine{Layer: inLayerSix, Column: column})
	}
	counts := map[[2]Position]float64{}
	for i := range selections {
		won := Positions(Select(prizes(inLayerSix, inLayerSix), sold, indexes(NewStream(seed("uniform", i)))))
		counts[[2]Position(won)]++
	}
	const expected = float64(selections) / outcomes
	chi := float64(outcomes-len(counts)) * expected // of those that never came
	for _, n := range counts {
		chi += math.Pow(n-expected, 2) / expected
	}
	return chi
}

// small cuts the numbers of a stream to 0 … 7, of which 6 is no divisor: a bias of a modulo,
// far too small to see with 64 bits, is a third there.
type small struct {
	stream *Stream
	index  func(n, last uint64, next func() uint64) uint64
}

func (s small) Below(n uint64) uint64 {
	return s.index(n, 7, func() uint64 { return s.stream.Uint64() >> 61 })
}

func TestEveryOutcomeOfASelectionIsAsLikely(t *testing.T) {
	t.Parallel()
	if chi := chiSquare(func(s *Stream) Indexes { return s }); chi > atMost {
		t.Errorf("chi-square is %.1f, more than %.1f", chi, atMost)
	}
	if chi := chiSquare(func(s *Stream) Indexes { return small{s, below} }); chi > atMost {
		t.Errorf("with numbers of 3 bits chi-square is %.1f, more than %.1f", chi, atMost)
	}
}

func TestTheBiasOfAModuloIsCaught(t *testing.T) {
	t.Parallel()
	modulo := func(n, _ uint64, next func() uint64) uint64 { return next() % n }
	if chi := chiSquare(func(s *Stream) Indexes { return small{s, modulo} }); chi <= atMost {
		t.Errorf("chi-square of a modulo without rejection is %.1f, which passes", chi)
	}
}

func TestAnIndexSkipsTheUnevenEndAndNoMore(t *testing.T) {
	t.Parallel()
	for last := range uint64(40) {
		for n := uint64(1); n <= last+1; n++ {
			counts := make([]int, n)
			for x := range last + 1 {
				taken := false
				index := below(n, last, func() uint64 {
					if taken {
						return 0 // x was skipped
					}
					taken = true
					return x
				})
				if x < last+1-(last+1)%n {
					counts[index]++
				} else if index != 0 {
					t.Fatalf("%d of 0 … %d gives the index %d below %d; it must be skipped", x, last, index, n)
				}
			}
			for _, count := range counts {
				if count != int((last+1)/n) {
					t.Fatalf("numbers to %d, indexes below %d: %v", last, n, counts)
				}
			}
		}
	}
}
