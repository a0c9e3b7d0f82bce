package fairdraw

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Invariants of a selection, over random triangles and prizes:
//   - each prize appears once, in number order;
//   - a winner is a sold position of the prize's own layer;
//   - no position wins twice;
//   - a prize goes unawarded only when its layer has no candidate left;
//   - the same inputs give the same winners, other entropy (almost surely) others.
func TestSelectionKeepsItsInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.IntRange(3, 12).Draw(t, "base")
		var sold []SoldLine
		perLayer := map[int]int{}
		for _, layer := range Triangle(base) {
			for column := range layer.Positions {
				if rapid.IntRange(0, 3).Draw(t, "sold") > 0 {
					sold = append(sold, SoldLine{Layer: layer.Layer, Column: column + 1})
					perLayer[layer.Layer]++
				}
			}
		}
		var prizes []Prize
		for layer := 1; layer <= base; layer++ {
			for range rapid.IntRange(0, layer).Draw(t, "prizes") {
				prizes = append(prizes, Prize{Number: len(prizes) + 1, Layer: layer, Name: "p"})
			}
		}
		entropy := sha256.Sum256(rapid.SliceOfN(rapid.Byte(), 8, 8).Draw(t, "seed"))
		winners := Select(prizes, sold, NewStream(entropy))
		if len(winners) != len(prizes) {
			t.Fatalf("%d winners for %d prizes", len(winners), len(prizes))
		}
		won, awarded := map[Position]bool{}, map[int]int{}
		for i, w := range winners {
			if (Prize{Number: w.Prize, Layer: w.Layer, Name: w.Name}) != prizes[i] {
				t.Fatalf("prize %d is out of order", i)
			}
			if w.Column == nil {
				if awarded[w.Layer] != perLayer[w.Layer] {
					t.Fatalf("prize %d not awarded though layer %d had candidates", i, w.Layer)
				}
				continue
			}
			at := Position{w.Layer, *w.Column}
			if won[at] || !slices.ContainsFunc(sold, func(l SoldLine) bool { return l.Position() == at }) {
				t.Fatalf("prize %d went to %v", i, at)
			}
			won[at] = true
			awarded[w.Layer]++
		}
		if again := Select(prizes, sold, NewStream(entropy)); !reflect.DeepEqual(again, winners) {
			t.Fatal("the same inputs gave other winners")
		}
	})
}

// The tree of a layer finds what the definition says: the i-th of those that are left.
func TestTakingFromALayerIsTakingFromAList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		left := make([]SoldLine, rapid.IntRange(1, 70).Draw(t, "positions"))
		for i := range left {
			left[i].Column = i + 1
		}
		c := newCandidates(slices.Clone(left))
		for len(left) > 0 {
			i := rapid.IntRange(0, len(left)-1).Draw(t, "index")
			if got, want := c.take(i).Column, left[i].Column; got != want || c.left != len(left)-1 {
				t.Fatalf("the %d-th of %d is column %d, want %d; %d are left", i, len(left), got, want, c.left)
			}
			left = slices.Delete(left, i, i+1)
		}
	})
}

// counted counts the looks at the length of what is left.
type counted struct{ asked, largest uint64 }

func (c *counted) Below(n uint64) uint64 {
	c.asked, c.largest = c.asked+1, max(c.largest, n)
	return n / 2
}

// With a prize for each of half a million positions, a step that walked the layer would not
// end within any deadline of a test.
func TestEveryPositionOfTheLargestLayerCanWin(t *testing.T) {
	lines, prizes := make([]SoldLine, 500_500), make([]Prize, 500_500)
	for i := range lines {
		lines[i].Layer, lines[i].Column = 1, i+1
		prizes[i] = Prize{Number: i + 1, Layer: 1}
	}
	var indexes counted
	won := make([]bool, len(lines)+1)
	for _, w := range Select(prizes, lines, &indexes) {
		if w.Column == nil || won[*w.Column] {
			t.Fatalf("%+v", w)
		}
		won[*w.Column] = true
	}
	if indexes.asked != 500_500 || indexes.largest != 500_500 {
		t.Errorf("%+v", indexes)
	}
}

func TestIndexRejectsTheUnevenEnd(t *testing.T) {
	// With n = 2^63 + 1 the last whole multiple of n below 2^64 is n itself, so
	// nearly half of all numbers must be skipped; x mod n alone would favour
	// small indices.
	const n = 1<<63 + 1
	entropy := sha256.Sum256([]byte("uneven end"))
	all, kept := NewStream(entropy), NewStream(entropy)
	skipped := 0
	for range 64 {
		want := all.Uint64()
		for want >= n {
			want, skipped = all.Uint64(), skipped+1
		}
		if got := kept.Below(n); got != want {
			t.Fatalf("got %d, want %d", got, want)
		}
	}
	if skipped == 0 {
		t.Error("nothing was skipped: the test does not test")
	}
}

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
	prizes, counts := []Prize{{Number: 1, Layer: inLayerSix}, {Number: 2, Layer: inLayerSix}}, map[[2]int]float64{}
	for i := range selections {
		won := Select(prizes, sold, indexes(NewStream(sha256.Sum256(binary.BigEndian.AppendUint64([]byte("uniform"), uint64(i))))))
		counts[[2]int{*won[0].Column, *won[1].Column}]++
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
