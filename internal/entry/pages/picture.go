package pages

import (
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"

	"triprize/internal/entry/httpapi/contract"
)

// Bounds of a picture with a square for each position. Of another campaign each layer is a bar.
const (
	mostSquares = 2000
	mostLines   = 100 // layers, and positions of the longest
)

// HasSquares reports whether the picture of a campaign has a square for each position.
func HasSquares(c contract.Campaign) bool {
	return c.Positions.Total <= mostSquares && len(c.Layers) <= mostLines &&
		(isRaffle(c.Layers) || !slices.ContainsFunc(c.Layers, func(l contract.Layer) bool { return l.Positions.Total > mostLines }))
}

// isRaffle reports whether positions are no rows of seats: they are drawn in lines.
func isRaffle(layers []contract.Layer) bool {
	return len(layers) == 1 && len(layers[0].Aisles) == 0 && layers[0].Positions.Total > mostInLine
}

// states are those of a picture, in the order of its legend: the states of positions, but for available, which is free,
// and won: sold, and drawn.
var states = []string{"free", "unsold", "held", "reserved", "sold", "blocked", "won"}

// stateOf returns what a picture shows of a position in a state.
func stateOf(state string, isWon bool) string {
	switch {
	case isWon:
		return "won"
	case state == "available":
		return "free"
	default:
		return state
	}
}

// pictureOf draws the positions of a campaign, and counts them by state. Squares are 10 units wide; the page scales the
// drawing to its own width.
func pictureOf(s Snapshot) (template.HTML, []legend) {
	var d drawing
	counts := make(map[string]int)
	if s.States != nil {
		for _, state := range s.States {
			counts[state]++
		}
		d.squares(s)
	} else {
		byLayer := countsOf(s)
		for _, layer := range byLayer {
			for state, n := range layer {
				counts[state] += n
			}
		}
		d.bars(s.Campaign, byLayer)
	}
	var all []legend
	for _, state := range states {
		if n := counts[state]; n > 0 || state == "sold" {
			l := legend{State: state, Label: "state_" + state, Count: n}
			switch {
			case state == "reserved" && s.States == nil:
				l.Label = "state_held_or_reserved"
			case state == "sold" && len(s.Draw.Winners) > 0:
				l.Label = "state_lost"
			}
			all = append(all, l)
		}
	}
	return d.svg(), all
}

// countsOf counts the positions of each layer by state. Held ones are among the reserved.
func countsOf(s Snapshot) []map[string]int {
	won := make(map[int]int)
	for _, w := range s.Draw.Winners {
		if w.Column != nil {
			won[w.Layer]++
		}
	}
	free, all := freeOf(s.Campaign), make([]map[string]int, len(s.Campaign.Layers))
	for i, l := range s.Campaign.Layers {
		all[i] = map[string]int{free: l.Positions.Available, "reserved": l.Positions.Reserved, "sold": l.Positions.Sold - won[l.Layer], "blocked": l.Positions.Blocked, "won": won[l.Layer]}
	}
	return all
}

// freeOf is what positions are that nobody has: nobody can buy them once the sale is over for good.
func freeOf(c contract.Campaign) string {
	if c.State == contract.CampaignStateActive {
		return "free"
	}
	return "unsold"
}

// drawing is a picture that is being drawn.
type drawing struct {
	strings.Builder
	width, height float64
}

func (d *drawing) svg() template.HTML {
	scale := min(4, max(1, 640/d.width), max(.2, 900/d.height))                                                                                          // a small triangle is not shown tiny, nor huge
	return template.HTML(fmt.Sprintf(`<svg viewBox="0 0 %g %g" width="%.0f" aria-hidden="true">%s</svg>`, d.width, d.height, d.width*scale, d.String())) //nolint:gosec // texts in it are escaped
}

func (d *drawing) rect(state string, x, y, width, height float64) {
	fmt.Fprintf(d, `<rect data-state="%s" x="%.4g" y="%g" width="%.4g" height="%g"/>`, state, x, y, width, height)
}

const (
	cell       = 10.
	square     = 9.  // without the gap
	labelWidth = 60. // of the names of rows
	mostInLine = 50  // squares of a raffle, whose only layer is drawn in lines
)

// squares draws each position. Rows have their labels and aisles; those of a triangle are centred.
func (d *drawing) squares(s Snapshot) {
	layers, at, left := s.Campaign.Layers, 0, 0.
	isTriangle, inLine := s.Campaign.BaseLength != nil, math.MaxInt
	if isRaffle(layers) {
		inLine = min(mostInLine, max(10, int(math.Sqrt(float64(2*len(s.States))))))
	}
	for _, l := range layers {
		if l.Label != nil && len(layers) > 1 {
			left = labelWidth
		}
		d.width = max(d.width, cell*float64(min(l.Positions.Total, inLine)+len(l.Aisles)))
	}
	d.width += left
	for _, l := range layers {
		if left > 0 && l.Label != nil {
			fmt.Fprintf(d, `<text x="0" y="%g">%s</text>`, d.height+square-1, template.HTMLEscapeString(shortened(*l.Label)))
		}
		x := left
		if isTriangle {
			x += (d.width - left - cell*float64(l.Positions.Total)) / 2
		}
		start := x
		for column := 1; column <= l.Positions.Total; column++ {
			d.rect(s.States[at], x, d.height, square, square)
			at++
			if x += cell; slices.Contains(l.Aisles, column) {
				x += cell
			}
			if column%inLine == 0 && column < l.Positions.Total {
				x, d.height = start, d.height+cell
			}
		}
		d.height += cell
	}
}

// shortened is a label that fits beside a row.
func shortened(label string) string {
	const most = 10
	width := 0
	for i, r := range label {
		if width++; r >= '\u2e80' { // of East Asia, twice as wide
			width++
		}
		if width > most {
			return label[:i] + "…"
		}
	}
	return label
}

// bars draws each layer as a bar with shares of the states.
func (d *drawing) bars(c contract.Campaign, counts []map[string]int) {
	const widest, highest = 400., 400.
	d.width = widest
	height, most := min(24, max(.5, highest/float64(len(c.Layers)))), 1
	for _, l := range c.Layers {
		most = max(most, l.Positions.Total)
	}
	for i, l := range c.Layers {
		unit, x := widest/float64(most), 0.
		if c.BaseLength != nil {
			x = (widest - unit*float64(l.Positions.Total)) / 2
		}
		for _, state := range []string{"won", "sold", "reserved", "blocked", "free", "unsold"} {
			if n := counts[i][state]; n > 0 {
				d.rect(state, x, d.height, unit*float64(n), height*.9)
				x += unit * float64(n)
			}
		}
		d.height += height
	}
}
