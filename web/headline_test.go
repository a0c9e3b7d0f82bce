//go:build web

package web_test

import (
	"slices"
	"strings"
	"testing"
)

// saying tells which of some sentences a list has, by a part of each.
func saying(list []string, parts ...string) (found []bool) {
	for _, part := range parts {
		found = append(found, slices.ContainsFunc(list, func(text string) bool { return strings.Contains(text, part) }))
	}
	return found
}

func TestAChainThatIsNotQuicknetIsCalledWeaker(t *testing.T) {
	t.Parallel()
	p := open(t, newSite(t, nil).URL+"/verify")
	proof, _ := draw{beacon: true}.proof(t, 0)
	r := p.verifyTold(proof, nil, told{ChainHashes: []string{chainHash()}})
	if r.Headline != "verified" || !slices.Equal(saying(r.Meaning.Open, "the maker of a chain can know every round beforehand", "The hash of the record tells"), []bool{true, true}) {
		t.Errorf("%+v", r)
	}
}

// That nothing changed is said only of what the user noted.
func TestNothingIsCalledUnchangedThatNobodyNoted(t *testing.T) {
	t.Parallel()
	p := open(t, newSite(t, nil).URL+"/verify")
	proof, _ := draw{}.proof(t, 0)
	freezeHash, commitment := freezeHashOf(t, proof).String(), commitmentOf(t, proof)
	for _, c := range []struct {
		user   told
		failed []string
		means  []bool // nothing changed since the commitment; nothing changed after the freeze
	}{
		{told{}, nil, []bool{false, false}},
		{told{Commitment: commitment}, nil, []bool{true, false}},
		{told{FreezeHash: freezeHash}, nil, []bool{false, true}},
		{told{Commitment: freezeHash}, []string{"noted-commitment"}, []bool{false, false}},
		{told{Commitment: commitment, FreezeHash: commitment}, []string{"noted-freeze-hash"}, []bool{false, false}},
	} {
		r := p.verifyTold(proof, nil, c.user)
		means := saying(r.Meaning.Shows, "Nothing changed in rules and secret", "Nothing changed after the list was frozen")
		if !slices.Equal(r.with("failed"), c.failed) || (r.Headline == "verified") != (c.failed == nil) || !slices.Equal(means, c.means) {
			t.Errorf("%+v: %+v", c.user, r)
		}
	}
}
