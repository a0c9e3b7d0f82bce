package devkit

import (
	"fmt"
	"io"
	"strings"

	"triprize/internal/domain/shape"
)

// print shows the outcome to a person: the board, the winners, the figures.
func (d *demo) print(w io.Writer) {
	r := d.report
	won := make(map[shape.Position]bool)
	for _, x := range r.Winners {
		if x.Column != nil {
			won[shape.Position{Layer: x.Layer, Column: *x.Column}] = true
		}
	}
	say(w, "")
	if d.form.Count() <= mostShown {
		d.printBoard(w, won)
	}
	winners := r.Winners
	if len(winners) > mostWinners {
		winners = winners[:mostWinners]
	}
	for _, x := range winners {
		if x.Column == nil {
			say(w, "  prize %2d  %-24s  not awarded", x.Prize, x.Name)
		} else {
			say(w, "  prize %2d  %-24s  position %d/%d  purchase %s", x.Prize, x.Name, x.Layer, *x.Column, x.PurchaseID)
		}
	}
	if more := len(r.Winners) - len(winners); more > 0 {
		say(w, "  … and %d more", more)
	}
	say(w, "\n  %d buyers for %d positions: %d succeeded, %d refused, drawn %d time(s)", r.Buyers, r.Positions, r.Succeeded, r.Rejected, r.Draws)
	say(w, "  %d ms, %.0f purchases/s\n  latency cold: %s   (the first crowd: new connections)\n          warm: %s", r.DurationMS, r.PurchasesPerSecond, r.ColdLatencyMS, r.LatencyMS)
	if r.Proof != "" {
		say(w, "  the proof of the draw is in %s; check it yourself, without any server:\n    triprize verify %s", r.Proof, r.Proof)
	}
	if r.OK {
		say(w, "  every promise held")
	}
}

// The part of large campaigns that is shown.
const (
	mostShown   = 1275 // positions of a board
	mostWinners = 50
)

// printBoard shows a triangle as a triangle, and any other shape as rows.
func (d *demo) printBoard(w io.Writer, won map[shape.Position]bool) {
	for layer := 1; layer <= d.form.Layers(); layer++ {
		if base := d.form.BaseLength(); base != 0 {
			fmt.Fprint(w, strings.Repeat(" ", base-layer+2))
		} else {
			fmt.Fprintf(w, "  %-8s", d.draft.Layers[layer-1].Label)
		}
		for column := 1; column <= d.form.InLayer(layer); column++ {
			fmt.Fprint(w, d.glyph(shape.Position{Layer: layer, Column: column}, won), " ")
		}
		fmt.Fprintln(w)
	}
	say(w, "\n  ★ won   ● sold   · free\n")
}

func (d *demo) glyph(p shape.Position, won map[shape.Position]bool) string {
	switch {
	case won[p]:
		return "★"
	case d.owners[p]:
		return "●"
	default:
		return "·"
	}
}
