//go:build web

package web_test

import (
	"bytes"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/gowebpki/jcs"

	"triprize.example/draw/fairdraw"
	"triprize.example/draw/testkit/drawn"
	"triprize/internal/testkit/servers"
)

// draw describes a draw to make a proof of. The zero value is a triangle of three layers,
// all sold, with a prize in layer 2 and two in layer 3, and no beacon.
type draw struct {
	layers []int // positions of each; no triangle
	base   int   // base length of a triangle; 0: 3
	prizes []fairdraw.Prize
	beacon bool
	unsold func(layer, column int) bool
}

// chain has the rounds of all draws with a beacon.
var chain = sync.OnceValue(func() *drawn.Chain { return drawn.NewChain("web", time.Now()) })

func chainHash() string { return fairdraw.Hash(chain().Hash()).String() }

var campaignID = uuid.MustParse("4420823c-fde6-41c2-ab30-f90ec7dd01e4")

func (d draw) rules() fairdraw.Rules {
	base := d.base
	if base == 0 {
		base = 3
	}
	prizes := d.prizes
	if prizes == nil {
		prizes = []fairdraw.Prize{{Number: 1, Layer: 2, Name: `<img src=x onerror="document.title='marked'">`}, {Number: 2, Layer: 3, Name: "ein großer Preis 🏆"}, {Number: 3, Layer: 3, Name: "a \"mug\"\n"}}
	}
	rules := fairdraw.NewRules(campaignID, fairdraw.Triangle(base), prizes, nil)
	if d.layers != nil {
		rules.BaseLength, rules.Layers = 0, nil
		for i, positions := range d.layers {
			rules.Layers = append(rules.Layers, fairdraw.Layer{Layer: i + 1, Positions: positions})
		}
	}
	if d.beacon {
		rules.Beacon = &fairdraw.Beacon{ChainHash: chain().Hash(), PeriodS: chain().PeriodS}
	}
	if d.unsold != nil {
		rules.Unsold = &fairdraw.Unsold{EndsAt: fairdraw.At(time.Now().Add(-time.Hour))}
	}
	return rules
}

// proof returns the proof document, and that of the purchase that has a line of the list.
func (d draw) proof(t *testing.T, line int) (proof, purchase []byte) {
	t.Helper()
	made := drawn.New(d.rules(), d.unsold)
	if d.beacon {
		made.Chain = chain()
	}
	proof = made.Text(t)
	if len(made.Sold) > fairdraw.SubtreeLeaves || len(made.Sold) == 0 {
		return proof, nil // its paths would need more than one page
	}
	purchase, err := made.Purchase(t, line).Canonical()
	servers.NoError(t, err)
	return proof, purchase
}

// changed returns a document in canonical form after a change.
func changed(t *testing.T, document []byte, change func(map[string]any)) []byte {
	t.Helper()
	var members map[string]any
	decoder := json.NewDecoder(bytes.NewReader(document))
	decoder.UseNumber()
	servers.NoError(t, decoder.Decode(&members))
	change(members)
	plain, err := json.Marshal(members)
	servers.NoError(t, err)
	text, err := jcs.Transform(plain)
	servers.NoError(t, err)
	return text
}

// hashesOf returns the values that a user can note of a proof.
func hashesOf(t *testing.T, proof []byte) (commitment, freezeHash string) {
	t.Helper()
	var document struct {
		Commitment string
		FreezeHash string `json:"freeze_hash"`
	}
	servers.NoError(t, json.Unmarshal(proof, &document))
	return document.Commitment, document.FreezeHash
}
