package drandsim

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/cloudflare/circl/sign/bls"

	"triprize.example/draw/beacon"
)

// Name is the beacon id of the chains made here.
const Name = beacon.TestID

// Chain is a chain of test rounds, with the key that signs them.
type Chain struct {
	beacon.Chain

	key *bls.PrivateKey[bls.KeyG2SigG1]
}

// NewChain returns the chain of a seed, of at least 32 bytes: the same seed, genesis and
// period make the same chain. Genesis and period are whole seconds.
func NewChain(seed []byte, genesis time.Time, period time.Duration) (*Chain, error) {
	if period < time.Second || period%time.Second != 0 {
		return nil, fmt.Errorf("drandsim.NewChain: the period is %s, must be whole seconds", period)
	}
	key, err := bls.KeyGen[bls.KeyG2SigG1](seed, nil, []byte(Name))
	if err != nil {
		return nil, fmt.Errorf("drandsim.NewChain: %w", err)
	}
	public, err := key.PublicKey().MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("drandsim.NewChain: %w", err)
	}
	genesisSeed := sha256.Sum256(append([]byte(Name+" genesis seed"), public...))
	c := &Chain{key: key, Chain: beacon.Chain{PublicKey: public, GenesisTime: genesis.Unix(), GenesisSeed: genesisSeed[:], ID: Name, PeriodS: int(period / time.Second)}}
	if err := c.Check(); err != nil {
		return nil, fmt.Errorf("drandsim.NewChain: %w", err)
	}
	return c, nil
}

// Sign returns a round, whether it is due or not.
func (c *Chain) Sign(number uint64) beacon.Round {
	message := sha256.Sum256(binary.BigEndian.AppendUint64(nil, number))
	signature := bls.Sign(c.key, message[:])
	return beacon.Round{Number: number, Signature: signature, Randomness: sha256.Sum256(signature)}
}

// Latest returns the newest round that is due, as relays without faults do.
func (c *Chain) Latest(context.Context, beacon.Chain) (beacon.Round, error) {
	return c.Sign(c.RoundAt(time.Now())), nil
}

// Round returns a round, due or not.
func (c *Chain) Round(_ context.Context, _ beacon.Chain, number uint64) (beacon.Round, error) {
	return c.Sign(number), nil
}

// Fork returns a chain that says of itself what this one does, and signs with another key:
// none of its rounds verifies.
func (c *Chain) Fork() (*Chain, error) {
	raw, err := c.key.MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("drandsim.Fork: %w", err)
	}
	other, err := bls.KeyGen[bls.KeyG2SigG1](raw, nil, []byte("forked"))
	if err != nil {
		return nil, fmt.Errorf("drandsim.Fork: %w", err)
	}
	return &Chain{Chain: c.Chain, key: other}, nil
}

// Info is what a relay says of the chain at /info, and what the setting beacon.chain takes.
type Info struct {
	PublicKey   string            `json:"public_key"`
	Period      int               `json:"period"`
	GenesisTime int64             `json:"genesis_time"`
	Hash        string            `json:"hash"`
	GroupHash   string            `json:"groupHash"`
	SchemeID    string            `json:"schemeID"`
	Metadata    map[string]string `json:"metadata"`
}

// Info describes the chain.
func (c *Chain) Info() Info {
	return Info{PublicKey: hex.EncodeToString(c.PublicKey), Period: c.PeriodS, GenesisTime: c.GenesisTime, Hash: fmt.Sprintf("%x", c.Hash()),
		GroupHash: hex.EncodeToString(c.GenesisSeed), SchemeID: "bls-unchained-g1-rfc9380", Metadata: map[string]string{"beaconID": c.ID}}
}

// String returns Info as JSON, in one line.
func (i Info) String() string {
	text, _ := json.Marshal(i) // texts and numbers
	return string(text)
}
