package shape_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"triprize/internal/domain/shape"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/property"
)

func anyShape(t *rapid.T) shape.Shape {
	return shape.New(rapid.SliceOfN(rapid.Custom(func(t *rapid.T) shape.Layer {
		return shape.Layer{Positions: rapid.IntRange(1, 9).Draw(t, "positions"), Label: rapid.SampledFrom([]string{"", "Row A", "Box"}).Draw(t, "label")}
	}), 1, 8).Draw(t, "layers"))
}

func TestEveryPositionComesOnceInOrderAndIsFoundByItsNumber(t *testing.T) {
	t.Parallel()
	property.Check(t, func(t *rapid.T) {
		s := anyShape(t)
		n, last := 0, shape.Position{}
		for p := range s.All() {
			n++
			at, ok := s.At(n)
			if !ok || at != p || s.Number(p) != n || !s.Has(p) || !last.Before(p) {
				t.Fatalf("position %d is %v after %v, has the number %d, and At finds %v", n, p, last, s.Number(p), at)
			}
			if p.Column == 1 && s.First(p.Layer) != n {
				t.Fatalf("layer %d begins with %d, not with %d", p.Layer, n, s.First(p.Layer))
			}
			last = p
		}
		from := rapid.IntRange(-1, n+2).Draw(t, "from")
		if rest := slices.Collect(s.From(from)); from >= 1 && len(rest) != max(n-from+1, 0) || from < 1 && len(rest) != 0 {
			t.Fatalf("%d positions from %d on, of %d", len(rest), from, n)
		}
		if n != s.Count() {
			t.Fatalf("%d positions, and Count says %d", n, s.Count())
		}
		for _, number := range []int{-1, 0, n + 1} {
			if p, ok := s.At(number); ok {
				t.Fatalf("position %d of %d is %v", number, n, p)
			}
		}
		for _, p := range []shape.Position{{}, {Layer: 1}, {Layer: 0, Column: 1}, {Layer: -1, Column: -1}, {Layer: s.Layers() + 1, Column: 1}, {Layer: 1, Column: s.InLayer(1) + 1}} {
			if s.Has(p) {
				t.Fatalf("%v lies in it", p)
			}
		}
	})
}

func TestATriangleIsAShapeThatKnowsItsBaseLength(t *testing.T) {
	t.Parallel()
	for _, base := range []int{shape.MinBaseLength, 20, 50, shape.MaxBaseLength} {
		s := fixture.Triangle(base)
		if s.BaseLength() != base || s.Layers() != base || s.Count() != shape.TriangleCount(base) || s.InLayer(base) != base {
			t.Errorf("base %d: %d layers, %d positions, base length %d", base, s.Layers(), s.Count(), s.BaseLength())
		}
	}
	if shape.TriangleCount(20) != 210 || shape.TriangleCount(shape.MaxBaseLength) != shape.MaxPositions {
		t.Error("the documents count 210 positions for 20 layers, and 500,500 at most")
	}
	for _, layers := range [][]shape.Layer{nil, {{Positions: 1}}, {{Positions: 1}, {Positions: 2}}, {{Positions: 1}, {Positions: 2}, {Positions: 4}}, {{Positions: 2}, {Positions: 2}, {Positions: 3}}} {
		if base := shape.New(layers).BaseLength(); base != 0 {
			t.Errorf("%v: base length %d", layers, base)
		}
	}
}

func TestALabelIsThatOfTheLayerWithTheColumnOrTheNumber(t *testing.T) {
	t.Parallel()
	s := shape.New([]shape.Layer{{Positions: 12, Label: "Row A"}, {Positions: 3}, {Positions: 2, Label: "Box"}})
	for _, c := range []struct {
		at   shape.Position
		want string
	}{
		{shape.Position{Layer: 1, Column: 5}, "Row A 5"},
		{shape.Position{Layer: 2, Column: 1}, "13"},
		{shape.Position{Layer: 3, Column: 2}, "Box 2"},
	} {
		if got := s.Label(c.at); got != c.want {
			t.Errorf("%v: %q, want %q", c.at, got, c.want)
		}
	}
}
