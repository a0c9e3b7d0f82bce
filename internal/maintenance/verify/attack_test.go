package verify

import (
	"slices"
	"strings"
	"testing"
	"time"

	"triprize/internal/domain/fairdraw"
	"triprize/internal/testkit/drawn"
	"triprize/internal/testkit/forge"
	"triprize/sandbox/tsasim"
)

// The operator makes a root of its own, names it in the rules, and waits for the round. Then it
// chooses among lists, freezes an old time, and stamps the record by its own root with an old time.
// Everything holds. Nobody but the operator has named the authority, and the verifier says so.
func TestAnOperatorThatIsItsOwnWitnessIsNotCalledWitnessed(t *testing.T) {
	t.Parallel()
	m := drawn.Triangle(3)
	m.FrozenAt = time.Now().Add(-48 * time.Hour) // its round was due 38 hours ago
	m.WithBeacon()
	honest := tsasim.Start(t, tsasim.Options{})
	own := forge.Token{GenTime: m.FrozenAt.UTC().Format("20060102150405") + "Z"}
	m.Rules.Witness = []fairdraw.Hash{own.Root()}
	text := m.Text(t, func(p *fairdraw.Proof) {
		own.Digest = p.FreezeHash
		p.Witness = [][]byte{own.DER()}
	})
	for _, named := range [][]fairdraw.Hash{nil, {honest.Root}} {
		o := optionsOf(m)
		o.Authorities = named
		r := verified(t, text, o)
		if !r.OK || r.Headline != "verified, stamped only by an authority that the operator named" {
			t.Errorf("%q, %v failed", r.Headline, r.Failed())
		}
		if shows := strings.Join(r.Shows, "\n"); strings.Contains(shows, "before the round was due") || strings.Contains(shows, "authorit") {
			t.Errorf("it shows %q", shows)
		}
		for _, open := range []string{"the tokens show no more than the beacon alone", "the maker of a chain can know every round beforehand"} {
			if !strings.Contains(strings.Join(r.Remains, "\n"), open) {
				t.Errorf("what remains: %q", r.Remains)
			}
		}
	}
}

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

// A token from more than a minute before the freeze shows that a clock is wrong. That is no fault of
// the proof.
func TestAClockThatIsWrongIsReported(t *testing.T) {
	t.Parallel()
	for before, want := range map[time.Duration]bool{time.Minute: false, time.Minute + time.Microsecond: true} {
		m := forgedDraw([][32]byte{forge.Token{}.Root()})
		text := m.Text(t, func(p *fairdraw.Proof) {
			token := forge.Token{Digest: p.FreezeHash, GenTime: strings.Replace(m.FrozenAt.Add(-before).Format("20060102150405.999999")+"Z", ".Z", "Z", 1)}
			p.Witness = [][]byte{token.DER()}
		})
		r := verified(t, text, optionsOf(m))
		if words := checkOf(r, fairdraw.CheckWitness).Words; !r.OK || strings.Contains(words, "a clock is wrong") != want || strings.Contains(strings.Join(r.Remains, "\n"), "Which clock is right") != want {
			t.Errorf("%s before: %s; %q", before, words, r.Remains)
		}
	}
}
