package verify

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloudflare/circl/sign/bls"
	"github.com/google/uuid"

	"triprize/internal/domain/beacon"
	"triprize/internal/domain/fairdraw"
	"triprize/internal/domain/shape"
	"triprize/internal/platform/config"
	"triprize/internal/platform/timestamp"
	"triprize/internal/simulator/tsasim"
)

// made is a campaign that was drawn. Tests change a part and have the rest follow.
type made struct {
	id        uuid.UUID
	rules     fairdraw.Rules
	secret    fairdraw.Hash
	sold      []fairdraw.Sold
	frozenAt  time.Time
	chain     *testChain
	ahead     uint64 // rounds between the freeze and its round
	witnesses []*tsasim.Authority
}

// testChain is a chain that tests have the key of.
type testChain struct {
	beacon.Chain
	key *bls.PrivateKey[bls.KeyG2SigG1]
}

// The chain of the tests has rounds of an hour: the tokens are of the moment of the test,
// and however slow the machine is, that is before the round of a list frozen at the same
// moment. The list is frozen in the middle of a round.
const hour = 3600

func newChain(t testing.TB, seed string, frozenAt time.Time) *testChain {
	t.Helper()
	ikm := sha256.Sum256([]byte(seed))
	key, err := bls.KeyGen[bls.KeyG2SigG1](ikm[:], nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	public, err := key.PublicKey().MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	return &testChain{beacon.Chain{PublicKey: public, GenesisTime: frozenAt.Unix() - 1000*hour - hour/2, GenesisSeed: ikm[:], ID: "test", PeriodS: hour}, key}
}

func (c *testChain) hash() fairdraw.Hash { return c.Hash() }

func (c *testChain) sign(number uint64) []byte {
	message := sha256.Sum256(binary.BigEndian.AppendUint64(nil, number))
	return bls.Sign(c.key, message[:])
}

// newMade returns a triangle whose positions are all sold, one purchase for two of them,
// with a prize in every layer.
func newMade(base int) *made {
	m := &made{id: uuid.MustParse("0193b0a8-0000-7000-8000-000000000001"), secret: sha256.Sum256([]byte("secret")),
		frozenAt: time.Now(), ahead: fairdraw.RoundsAhead}
	var prizes []fairdraw.Prize
	for layer := 1; layer <= base; layer++ {
		prizes = append(prizes, fairdraw.Prize{Number: layer, Layer: layer, Name: fmt.Sprintf("Prize <%d> für Zoë", layer)})
		for column := 1; column <= layer; column++ {
			n := len(m.sold)
			nonce := sha256.Sum256(fmt.Appendf(nil, "nonce %d", n/2))
			id := uuid.NewSHA1(m.id, fmt.Appendf(nil, "purchase %d", n/2))
			m.sold = append(m.sold, fairdraw.Sold{Position: shape.Position{Layer: layer, Column: column}, PurchaseID: id,
				Nonce: [fairdraw.NonceSize]byte(nonce[:fairdraw.NonceSize]), UserID: fmt.Sprintf("user-%d", n/2)})
		}
	}
	m.rules = fairdraw.NewRules(m.id, shape.Triangle(base), prizes, nil)
	return m
}

// withBeacon binds the campaign to a chain.
func (m *made) withBeacon(t testing.TB) *made {
	t.Helper()
	m.chain = newChain(t, "chain", m.frozenAt)
	m.rules.Beacon = &fairdraw.Beacon{ChainHash: m.chain.hash(), PeriodS: m.chain.PeriodS}
	return m
}

// withWitness binds it to authorities.
func (m *made) withWitness(authorities ...*tsasim.Authority) *made {
	for _, a := range authorities {
		m.rules.Witness = append(m.rules.Witness, a.Root)
	}
	m.witnesses = authorities
	return m
}

// proof returns the document without its list.
func (m *made) proof(t testing.TB) fairdraw.Proof {
	t.Helper()
	rules, err := m.rules.Canonical()
	must(t, err)
	root, err := fairdraw.Root(m.sold)
	must(t, err)
	p := fairdraw.Proof{Version: fairdraw.Version, CampaignID: m.id, Rules: rules, Commitment: fairdraw.Commitment(m.id, rules, m.secret[:]),
		Secret: m.secret, Root: root, Count: len(m.sold), FrozenAt: fairdraw.At(m.frozenAt), Trust: fairdraw.TrustOperator}
	var randomness []byte
	if m.chain != nil {
		number := m.chain.RoundAt(m.frozenAt) + m.ahead
		signature := m.chain.sign(number)
		p.Round, p.Trust = &number, fairdraw.TrustBeacon
		p.Beacon = &fairdraw.ProofBeacon{ChainHash: m.chain.hash(), PublicKey: m.chain.PublicKey, GenesisTime: m.chain.GenesisTime, GenesisSeed: m.chain.GenesisSeed,
			BeaconID: m.chain.ID, PeriodS: m.chain.PeriodS, Round: number, Signature: signature, Randomness: sha256.Sum256(signature)}
		randomness = p.Beacon.Randomness[:]
	}
	record, err := p.Record().Canonical()
	must(t, err)
	p.FreezeHash = fairdraw.FreezeHash(record)
	p.Witness = m.tokens(t, p.FreezeHash)
	entropy := fairdraw.Entropy(m.secret[:], m.id, root, randomness)
	p.Winners = fairdraw.Winners(fairdraw.Select(m.rules.Prizes, fairdraw.Lines(m.sold), fairdraw.NewStream(entropy)))
	return p
}

func (m *made) tokens(t testing.TB, digest fairdraw.Hash) [][]byte {
	t.Helper()
	list := make([]string, len(m.witnesses))
	for i, a := range m.witnesses {
		list[i] = a.URL + " " + a.Chain
	}
	client, err := timestamp.New(config.Timestamps{Authorities: strings.Join(list, ","), Timeout: time.Minute}, nil, slog.New(slog.DiscardHandler))
	must(t, err)
	tokens, err := client.Stamp(t.Context(), digest, client.Authorities())
	must(t, err)
	slices.SortFunc(tokens, func(a, b timestamp.Token) int { return bytes.Compare(a.Authority[:], b.Authority[:]) })
	der := make([][]byte, len(tokens))
	for i, token := range tokens {
		der[i] = token.DER
	}
	return der
}

// text returns the document.
func (m *made) text(t testing.TB, changes ...func(*fairdraw.Proof)) []byte {
	t.Helper()
	p := m.proof(t)
	for _, change := range changes {
		change(&p)
	}
	return textOf(t, p, fairdraw.Lines(m.sold))
}

func textOf(t testing.TB, p fairdraw.Proof, sold []fairdraw.SoldLine) []byte {
	t.Helper()
	var out bytes.Buffer
	must(t, fairdraw.WriteProof(&out, p, lines(sold)))
	return out.Bytes()
}

func lines(sold []fairdraw.SoldLine) iter.Seq2[fairdraw.SoldLine, error] {
	return func(yield func(fairdraw.SoldLine, error) bool) {
		for _, l := range sold {
			if !yield(l, nil) {
				return
			}
		}
	}
}

// purchase returns the proof of the purchase that has the position of an index.
func (m *made) purchase(t testing.TB, index int) fairdraw.PurchaseProof {
	t.Helper()
	var tree fairdraw.Tree
	page := make([]fairdraw.Hash, len(m.sold)) // the tests have one page
	for i, s := range m.sold {
		must(t, tree.Append(s.Line()))
		page[i] = fairdraw.LeafHash(s.Leaf())
	}
	p := fairdraw.PurchaseProof{CampaignID: m.id, Root: tree.Root(), Count: tree.Count()}
	for i, s := range m.sold {
		if s.PurchaseID != m.sold[index].PurchaseID {
			continue
		}
		path, err := fairdraw.InclusionPath(page, []fairdraw.Hash{tree.Root()}, i, len(m.sold))
		must(t, err)
		p.Leaves = append(p.Leaves, fairdraw.ProofLeaf{Layer: s.Layer, Column: s.Column, PurchaseID: s.PurchaseID, Nonce: s.Nonce[:], UserID: s.UserID, Index: i, Path: path})
	}
	return p
}

// options accept the campaign's chain.
func (m *made) options() Options {
	if m.chain == nil {
		return Options{}
	}
	return Options{Chains: []fairdraw.Hash{m.chain.hash()}}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// verified returns the report about a document.
func verified(t testing.TB, text []byte, o Options) Report {
	t.Helper()
	report, err := Proof(bytes.NewReader(text), o)
	must(t, err)
	return report
}
