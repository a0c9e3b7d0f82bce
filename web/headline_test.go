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

// That nothing changed is said only of what the user noted, and a chain is trusted only when it is named.
func TestWhatTheUserSaysDecidesWhatAProofShows(t *testing.T) {
	t.Parallel()
	p := open(t, newSite(t, nil).URL+"/verify")
	plain, _ := draw{}.proof(t, 0)
	beacon, _ := draw{beacon: true}.proof(t, 0)
	freezeHash, commitment := freezeHashOf(t, plain).String(), commitmentOf(t, plain)
	for _, c := range []struct {
		proof  []byte
		user   told
		failed []string
		shows  []bool // nothing changed since the commitment; nothing changed after the freeze
		open   []bool // the chain is weaker; the hash of the record tells
	}{
		{plain, told{}, nil, []bool{false, false}, []bool{false, false}},
		{plain, told{Commitment: commitment}, nil, []bool{true, false}, []bool{false, false}},
		{plain, told{FreezeHash: freezeHash}, nil, []bool{false, true}, []bool{false, false}},
		{plain, told{Commitment: freezeHash}, []string{"noted-commitment"}, []bool{false, false}, []bool{false, false}},
		{plain, told{Commitment: commitment, FreezeHash: commitment}, []string{"noted-freeze-hash"}, []bool{false, false}, []bool{false, false}},
		{beacon, told{ChainHashes: []string{chainHash()}}, nil, []bool{false, false}, []bool{true, true}},
		{beacon, told{}, []string{"chain"}, []bool{false, false}, []bool{false, false}},
		{beacon, told{ChainHashes: []string{strings.Repeat("ab", 32)}}, []string{"chain"}, []bool{false, false}, []bool{false, false}},
	} {
		r := p.verify(c.proof, nil, c.user)
		shows := saying(r.Meaning.Shows, "Nothing changed in rules and secret", "Nothing changed after the list was frozen")
		weaker := saying(r.Meaning.Open, "the maker of a chain can know every round beforehand", "The hash of the record tells")
		if !slices.Equal(r.with("failed"), c.failed) || (r.Headline == "verified") != (c.failed == nil) || (r.Verdict == "failed") != (c.failed != nil) || !slices.Equal(shows, c.shows) || !slices.Equal(weaker, c.open) {
			t.Errorf("%+v: %+v", c.user, r)
		}
	}
}
