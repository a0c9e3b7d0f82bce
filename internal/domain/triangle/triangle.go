// Package triangle is the shape of a campaign: base length L gives layers
// 1..L, and layer k has the positions (k, 1) … (k, k).
package triangle

import "iter"

// The base lengths a campaign can have. The upper one is what the tables allow;
// an installation sets its own, lower limit.
const (
	MinBaseLength = 3
	MaxBaseLength = 1000
)

// Position is one place in the triangle; Layer and Column count from 1.
type Position struct {
	Layer  int `json:"layer"`
	Column int `json:"column"`
}

// Count returns the number of positions of a triangle: L(L+1)/2.
func Count(baseLength int) int { return baseLength * (baseLength + 1) / 2 }

// InLayer returns the number of positions of a layer, which is its number.
func InLayer(layer int) int { return layer }

// In tells whether p lies in a triangle of the given base length.
func (p Position) In(baseLength int) bool {
	return p.Layer >= 1 && p.Layer <= baseLength && p.Column >= 1 && p.Column <= p.Layer
}

// Before orders positions by layer, then column: the order of locks, lists and leaves.
func (p Position) Before(q Position) bool {
	if p.Layer != q.Layer {
		return p.Layer < q.Layer
	}
	return p.Column < q.Column
}

// All yields every position of a triangle by layer, then column.
func All(baseLength int) iter.Seq[Position] {
	return func(yield func(Position) bool) {
		for layer := 1; layer <= baseLength; layer++ {
			for column := 1; column <= layer; column++ {
				if !yield(Position{Layer: layer, Column: column}) {
					return
				}
			}
		}
	}
}
