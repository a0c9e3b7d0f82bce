package verify

import (
	"slices"
	"strings"
	"testing"

	"triprize.example/draw/fairdraw"
	"triprize.example/draw/testkit/drawn"
)

// That nothing changed is said only of what the user noted.
func TestNothingIsCalledUnchangedThatNobodyNoted(t *testing.T) {
	t.Parallel()
	m := drawn.Triangle(3)
	p := m.Proof(t)
	for _, c := range []struct {
		commitment, freezeHash *fairdraw.Hash
		failed                 []string
		shows                  int // sentences about what did not change
	}{
		{nil, nil, nil, 0},
		{&p.Commitment, nil, nil, 1},
		{&p.Commitment, &p.FreezeHash, nil, 2},
		{&p.FreezeHash, nil, []string{"noted-commitment"}, 0},
		{&p.Commitment, &p.Commitment, []string{"noted-freeze-hash"}, 0},
	} {
		r := verified(t, m.Text(t), Options{Commitment: c.commitment, FreezeHash: c.freezeHash})
		if !slices.Equal(r.Failed(), c.failed) || strings.Count(strings.Join(r.Shows, "\n"), "Nothing changed") != c.shows {
			t.Errorf("%v failed; it shows %q", r.Failed(), r.Shows)
		}
	}
	r := verified(t, []byte("{}"), Options{Commitment: &p.Commitment, FreezeHash: &p.FreezeHash})
	if checkOf(r, "noted-commitment").Status != NotMade || checkOf(r, "noted-freeze-hash").Status != NotMade || r.Headline != "not verified" {
		t.Errorf("%+v", r)
	}
}
