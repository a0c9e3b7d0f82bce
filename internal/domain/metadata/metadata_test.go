package metadata_test

import (
	"encoding/json"
	"maps"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"triprize/internal/domain/metadata"
	"triprize/internal/testkit/property"
)

func TestEveryBoundRefusesWhatIsBeyondItAndNamesThePair(t *testing.T) {
	t.Parallel()
	many := make(metadata.Map)
	for i := range metadata.MaxPairs {
		many[strconv.Itoa(i)] = ""
	}
	more := maps.Clone(many)
	more["one more"] = ""
	full := metadata.Map{"k": strings.Repeat("é", metadata.MaxValue), strings.Repeat("ü", metadata.MaxKey): ""}
	heavy := make(metadata.Map)
	for i := range 10 {
		heavy[strconv.Itoa(i)] = strings.Repeat("€", 68) // 205 bytes each with its key
	}
	for name, c := range map[string]struct {
		m     metadata.Map
		key   string
		whole bool
		fits  bool
	}{
		"none": {m: nil, fits: true}, "as many as may be": {m: many, fits: true}, "one more": {m: more, whole: true},
		"as long as may be": {m: full, fits: true}, "no key": {m: metadata.Map{"": "v"}},
		"a long key":         {m: metadata.Map{strings.Repeat("k", metadata.MaxKey+1): "v"}, key: strings.Repeat("k", metadata.MaxKey+1)},
		"a long value":       {m: metadata.Map{"a": "", "k": strings.Repeat("v", metadata.MaxValue+1)}, key: "k"},
		"a control in a key": {m: metadata.Map{"a\u0085": ""}, key: "a\u0085"}, "NUL": {m: metadata.Map{"k": "\x00"}, key: "k"},
		"no UTF-8": {m: metadata.Map{"k": "\xff"}, key: "k"}, "more bytes than may be": {m: heavy, whole: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			flaws := c.m.Check()
			switch {
			case c.fits && len(flaws) > 0, !c.fits && len(flaws) != 1:
				t.Errorf("%+v", flaws)
			case !c.fits && (flaws[0].Whole != c.whole || flaws[0].Key != c.key || flaws[0].Detail == ""):
				t.Errorf("%+v, not the pair %q", flaws[0], c.key)
			}
		})
	}
}

// The tables allow 4,608 bytes of JSON, where each quotation mark and each backslash is two.
func TestWhatFitsComesBackAndFitsTheTables(t *testing.T) {
	t.Parallel()
	text := func(least, most int) *rapid.Generator[string] {
		return rapid.StringOfN(rapid.SampledFrom([]rune("ab\"\\/~é€😀<>& ")), least, most, -1)
	}
	property.Check(t, func(t *rapid.T) {
		m := metadata.Map(rapid.MapOfN(text(1, metadata.MaxKey), text(0, metadata.MaxValue), 0, metadata.MaxPairs).Draw(t, "metadata"))
		if len(m.Check()) > 0 {
			return // beyond 2 KiB
		}
		var back metadata.Map
		if kept := m.Text(); len(m) > 0 {
			if err := json.Unmarshal(kept, &back); err != nil || !maps.Equal(back, m) {
				t.Fatalf("%v comes back as %v: %v", m, back, err)
			}
		} else if kept != nil {
			t.Fatalf("none is kept as %s", kept)
		}
	})
}
