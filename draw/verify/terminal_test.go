package verify

import (
	"strings"
	"testing"
	"unicode"

	"triprize.example/draw/fairdraw"
	"triprize.example/draw/testkit/drawn"
)

// A name can hold everything that moves the cursor: a false document would clear the screen
// and write its own verdict.
func TestNoTextOfADocumentWritesOnTheTerminalWhatWasNotFound(t *testing.T) {
	t.Parallel()
	m := drawn.Triangle(3)
	for i := range m.Rules.Prizes {
		m.Rules.Prizes[i].Name = "\x1b[2J\x1b[Hok\r\n\u202e\u0085" + m.Rules.Prizes[i].Name
	}
	for what, change := range map[string]func(*fairdraw.Proof){
		"honest": func(*fairdraw.Proof) {},
		"false":  func(p *fairdraw.Proof) { p.Winners[0].Name += "!" },
	} {
		r := verified(t, m.Text(t, change), optionsOf(m))
		if r.OK != (what == "honest") {
			t.Errorf("%s: %+v", what, r.Checks)
		}
		texts := append(append([]string{}, r.Shows...), r.Remains...)
		for _, c := range r.Checks {
			texts = append(texts, c.Words)
		}
		for _, text := range texts {
			if strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }) {
				t.Errorf("%s: %q", what, text)
			}
		}
	}
}
