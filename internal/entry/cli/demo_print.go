package cli

import (
	"fmt"
	"io"
	"strings"

	"triprize/internal/domain/shape"
)

// print shows the outcome to a person: the triangle, the winners, the figures.
func (d *demo) print(w io.Writer) {
	r := d.report
	won := make(map[shape.Position]bool)
	for _, x := range r.Winners {
		if x.Column != nil {
			won[shape.Position{Layer: x.Layer, Column: *x.Column}] = true
		}
	}
	say(w, "")
	for layer := 1; layer <= d.base; layer++ {
		fmt.Fprint(w, strings.Repeat(" ", d.base-layer+2))
		for column := 1; column <= layer; column++ {
			fmt.Fprint(w, d.glyph(shape.Position{Layer: layer, Column: column}, won), " ")
		}
		fmt.Fprintln(w)
	}
	say(w, "\n  ★ won   ● sold   · free\n")
	for _, x := range r.Winners {
		if x.Column == nil {
			say(w, "  prize %2d  %-24s  not awarded", x.Prize, x.Name)
		} else {
			say(w, "  prize %2d  %-24s  position %d/%d  purchase %s", x.Prize, x.Name, x.Layer, *x.Column, x.PurchaseID)
		}
	}
	say(w, "\n  %d buyers for %d positions: %d succeeded, %d refused, drawn %d time(s)", r.Buyers, r.Positions, r.Succeeded, r.Rejected, r.Draws)
	say(w, "  %d ms, %.0f purchases/s, latency p50 %.0f ms, p95 %.0f ms, p99 %.0f ms", r.DurationMS, r.PurchasesPerSecond, r.LatencyMS.P50, r.LatencyMS.P95, r.LatencyMS.P99)
	if r.Proof != "" {
		say(w, "  the proof of the draw is in %s; check it yourself, without any server:\n    triprize verify %s", r.Proof, r.Proof)
	}
	if r.OK {
		say(w, "  every promise held")
	}
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
