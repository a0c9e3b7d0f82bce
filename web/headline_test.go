//go:build web

package web_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"triprize/sandbox/tsasim"
)

// saying tells which of some sentences a list has, by a part of each.
func saying(list []string, parts ...string) (found []bool) {
	for _, part := range parts {
		found = append(found, slices.ContainsFunc(list, func(text string) bool { return strings.Contains(text, part) }))
	}
	return found
}

// An operator can be its own authority: it counts only when the user has named it.
func TestATimestampCountsOnlyOfAnAuthorityThatTheUserNamed(t *testing.T) {
	t.Parallel()
	p := open(t, newSite(t, nil).URL+"/verify")
	one, two := tsasim.Start(t, tsasim.Options{ECDSA: true}), tsasim.Start(t, tsasim.Options{ECDSA: true, Number: 1})
	plain, _ := draw{beacon: true}.proof(t, 0)
	single, _ := draw{beacon: true, authorities: []*tsasim.Authority{one}}.proof(t, 0)
	both, _ := draw{beacon: true, authorities: []*tsasim.Authority{one, two}}.proof(t, 0)
	without := changed(t, both, func(d map[string]any) { d["witness"] = []string{} })
	if r := p.verifyTold(plain, nil, told{ChainHashes: []string{chainHash()}}); !saying(r.Meaning.Open, "the maker of a chain can know every round beforehand")[0] {
		t.Errorf("of a chain that is not quicknet: %+v", r.Meaning)
	}
	for _, c := range []struct {
		proof    []byte
		named    []string
		headline string
		means    []bool // that you named, operator named, unwitnessed, anything more
	}{
		{plain, []string{rootOf(one)}, "verified", []bool{false, false, false, false}},
		{without, []string{rootOf(one)}, "verified, unwitnessed", []bool{false, false, true, false}},
		{single, nil, "verified, stamped only by an authority that the operator named", []bool{false, true, false, false}},
		{single, []string{chainHash()}, "verified, stamped only by an authority that the operator named", []bool{false, true, false, false}},
		{both, nil, "verified, stamped only by authorities that the operator named", []bool{false, true, false, false}},
		{both, []string{rootOf(two)}, "verified, witnessed by 1 of 2", []bool{true, true, false, true}},
		{both, []string{rootOf(one), rootOf(two)}, "verified, witnessed by 2 of 2", []bool{true, false, false, false}},
	} {
		r := p.verifyTold(c.proof, nil, told{ChainHashes: []string{chainHash()}, Authorities: c.named})
		means := saying(slices.Concat(r.Meaning.Shows, r.Meaning.Open), "that you named say", "that only the operator named", "(unwitnessed)", "Anything more")
		if r.Verdict != "verified" || r.Headline != c.headline || !slices.Equal(means, c.means) {
			t.Errorf("want %q: %+v, %+v", c.headline, r, means)
		}
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

// A token from long before the freeze shows that a clock is wrong. It is no fault of the proof.
func TestAClockThatIsWrongIsReported(t *testing.T) {
	t.Parallel()
	p := open(t, newSite(t, nil).URL+"/verify")
	a := tsasim.Start(t, tsasim.Options{ECDSA: true})
	for ahead, want := range map[time.Duration]bool{0: false, 20 * time.Minute: true} {
		proof, _ := draw{beacon: true, authorities: []*tsasim.Authority{a}, ahead: ahead}.proof(t, 0)
		r := p.verifyTold(proof, nil, told{ChainHashes: []string{chainHash()}, Authorities: []string{rootOf(a)}})
		i := slices.IndexFunc(r.Checks, func(c check) bool { return c.Name == "witness" })
		if r.Headline != "verified, witnessed by 1 of 1" || strings.Contains(r.Checks[i].Text, "a clock is wrong") != want || saying(r.Meaning.Open, "Which clock is right")[0] != want {
			t.Errorf("%s ahead: %+v", ahead, r)
		}
	}
}
