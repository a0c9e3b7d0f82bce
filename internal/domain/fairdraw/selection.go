package fairdraw

import "triprize/internal/domain/triangle"

// Winner is the outcome of one prize. Position is nil when the prize's layer
// had no candidate left: the prize is not awarded.
type Winner struct {
	Prize    Prize
	Position *Sold
}

// Select picks the winners: for each prize in number order, the candidates are
// the sold positions of its layer that have not won, in column order, and the
// stream's next index below their number picks one.
func Select(prizes []Prize, sold []Sold, stream *Stream) []Winner {
	candidates := make(map[int][]Sold)
	for _, s := range sold {
		candidates[s.Layer] = append(candidates[s.Layer], s)
	}
	winners := make([]Winner, 0, len(prizes))
	for _, prize := range prizes {
		left := candidates[prize.Layer]
		if len(left) == 0 {
			winners = append(winners, Winner{Prize: prize})
			continue
		}
		i := stream.Below(uint64(len(left)))
		won := left[i]
		winners = append(winners, Winner{Prize: prize, Position: &won})
		candidates[prize.Layer] = append(left[:i:i], left[i+1:]...)
	}
	return winners
}

// Positions returns the winning positions, in prize order.
func Positions(winners []Winner) []triangle.Position {
	won := make([]triangle.Position, 0, len(winners))
	for _, w := range winners {
		if w.Position != nil {
			won = append(won, w.Position.Position)
		}
	}
	return won
}
