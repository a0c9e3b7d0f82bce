// Package shape computes the layers and positions of a campaign.
//
// Layer k of a triangle has k positions. A hall has rows, a raffle is one layer. A position
// is a layer and a column. Its number counts through the campaign, from 1, in the order of
// layer and column. Its label is its name for people.
package shape

import (
	"iter"
	"slices"
	"strconv"

	"triprize.example/draw/fairdraw"
	"triprize/internal/domain/money"
)

// The limits of a campaign. An installation sets its own, lower limit of positions.
const (
	MaxLayers    = 1000
	MaxPositions = 500_500 // a triangle of 1,000 layers
	MaxLabel     = 100     // characters of a layer's label
	MaxAisles    = 100     // of a layer
)

// The base lengths that a triangle can have.
const (
	MinBaseLength = 3
	MaxBaseLength = 1000
)

// Position is a layer and a column, which count from 1. Locks, lists and leaves have its order.
type Position = fairdraw.Position

// Seat is a position with its names.
type Seat struct {
	Position
	Number int    `json:"number"`
	Label  string `json:"label"`
}

// Item is a position of a hold or purchase, at its price.
type Item struct {
	Seat
	Price money.Amount `json:"price"`
}

// Layer is a layer of a shape.
type Layer struct {
	Positions int    // at least 1
	Label     string // "Row C"; empty: none
	Aisles    []int  // sorted columns after which a run ends: no run crosses c|c+1
}

// Shape has the layers of a campaign. It is immutable. The zero value has no positions.
type Shape struct {
	layers []Layer
	before []int // positions in the layers before
	count  int
}

// New returns the shape with these layers; layers[0] is layer 1.
func New(layers []Layer) Shape {
	s := Shape{layers: slices.Clone(layers), before: make([]int, len(layers))}
	for i, l := range layers {
		s.before[i] = s.count
		s.count += l.Positions
	}
	return s
}

// Bytes estimates the memory of the shape.
func (s Shape) Bytes() int {
	const fixed, ofLayer = 128, 32
	n := fixed + ofLayer*len(s.layers)
	for _, l := range s.layers {
		n += len(l.Label) + 8*len(l.Aisles)
	}
	return n
}

// TriangleCount returns the number of positions of a triangle: L(L+1)/2.
func TriangleCount(baseLength int) int { return baseLength * (baseLength + 1) / 2 }

// Layers returns how many layers there are.
func (s Shape) Layers() int { return len(s.layers) }

// Count returns how many positions there are.
func (s Shape) Count() int { return s.count }

// InLayer returns how many positions a layer has; none of a layer that does not exist.
func (s Shape) InLayer(layer int) int {
	if layer < 1 || layer > len(s.layers) {
		return 0
	}
	return s.layers[layer-1].Positions
}

// LargestLayer returns how many positions a layer has; with layer 0, the largest.
func (s Shape) LargestLayer(layer int) (largest int) {
	if layer != 0 {
		return s.InLayer(layer)
	}
	for _, l := range s.layers {
		largest = max(largest, l.Positions)
	}
	return largest
}

// LongestRun returns the length of the longest run between edges and aisles of a layer; with layer 0, of any layer.
func (s Shape) LongestRun(layer int) (longest int) {
	for i, l := range s.layers {
		if layer != 0 && layer != i+1 {
			continue
		}
		begin := 0
		for _, aisle := range l.Aisles {
			longest, begin = max(longest, aisle-begin), aisle
		}
		longest = max(longest, l.Positions-begin)
	}
	return longest
}

// Aisle reports whether an aisle follows a position of an existing layer.
func (s Shape) Aisle(p Position) bool {
	_, found := slices.BinarySearch(s.layers[p.Layer-1].Aisles, p.Column)
	return found
}

// First returns the number of the first position of a layer that exists.
func (s Shape) First(layer int) int { return s.before[layer-1] + 1 }

// BaseLength returns the base length of a triangle with at least MinBaseLength layers, and 0 for other shapes.
func (s Shape) BaseLength() int {
	if len(s.layers) < MinBaseLength {
		return 0
	}
	for i, l := range s.layers {
		if l.Positions != i+1 {
			return 0
		}
	}
	return len(s.layers)
}

// Has reports whether the position exists.
func (s Shape) Has(p Position) bool { return p.Column >= 1 && p.Column <= s.InLayer(p.Layer) }

// Number returns the number of an existing position.
func (s Shape) Number(p Position) int { return s.before[p.Layer-1] + p.Column }

// At returns the position with a number, or false.
func (s Shape) At(number int) (Position, bool) {
	if number < 1 || number > s.count {
		return Position{}, false
	}
	layer, _ := slices.BinarySearch(s.before, number) // the first layer that begins behind it
	return Position{Layer: layer, Column: number - s.before[layer-1]}, true
}

// LayerLabel returns the label of a layer that exists; empty: it has none.
func (s Shape) LayerLabel(layer int) string { return s.layers[layer-1].Label }

// Label returns the label of an existing position for people: the label of its layer and its column ("Row C 5"), or
// its number if the layer has no label.
func (s Shape) Label(p Position) string {
	if label := s.layers[p.Layer-1].Label; label != "" {
		return label + " " + strconv.Itoa(p.Column)
	}
	return strconv.Itoa(s.Number(p))
}

// Name returns Seat.Name of an existing position, or the layer and column.
func (s Shape) Name(p Position) string {
	if s.Has(p) {
		return s.Seat(p).Name()
	}
	return Seat{Position: p}.Name()
}

// Name returns the name of a position in texts: layer and column, after the label if there is one ("Row C 5 (3/5)").
func (p Seat) Name() string {
	at := strconv.Itoa(p.Layer) + "/" + strconv.Itoa(p.Column)
	if p.Label == "" || p.Label == strconv.Itoa(p.Number) {
		return at
	}
	return p.Label + " (" + at + ")"
}

// LayerName returns the name of an existing layer in texts ("layer 3 (Row C)").
func (s Shape) LayerName(layer int) string {
	name := "layer " + strconv.Itoa(layer)
	if label := s.layers[layer-1].Label; label != "" {
		name += " (" + label + ")"
	}
	return name
}

// Seat returns an existing position with its names.
func (s Shape) Seat(p Position) Seat {
	return Seat{Position: p, Number: s.Number(p), Label: s.Label(p)}
}

// All yields every position by layer, then column.
func (s Shape) All() iter.Seq[Position] { return s.From(1) }

// From yields the positions from a number on.
func (s Shape) From(number int) iter.Seq[Position] {
	return func(yield func(Position) bool) {
		at, ok := s.At(number)
		for ; ok && at.Layer <= len(s.layers); at = (Position{Layer: at.Layer + 1, Column: 1}) {
			for ; at.Column <= s.layers[at.Layer-1].Positions; at.Column++ {
				if !yield(at) {
					return
				}
			}
		}
	}
}
