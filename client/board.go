package client

// Update brings a board up to date with what ListPositions has returned for
// Since: b.BoardVersion. It tells whether it could: changes that begin after b's version
// leave a gap, and b stays as it is; read the whole board then. The order of the positions
// stays.
func (b *Board) Update(changes Board) bool {
	switch {
	case changes.Since == 0: // the whole board
		*b = changes
		return true
	case changes.Since > b.BoardVersion:
		return false
	case changes.BoardVersion <= b.BoardVersion: // older than what is here
		return true
	}
	type place struct{ layer, column int }
	at := make(map[place]int, len(b.Positions))
	for i, p := range b.Positions {
		at[place{p.Layer, p.Column}] = i
	}
	for _, p := range changes.Positions {
		if i, known := at[place{p.Layer, p.Column}]; known {
			b.Positions[i] = p
		} else {
			b.Positions = append(b.Positions, p)
		}
	}
	b.BoardVersion = changes.BoardVersion
	return true
}
