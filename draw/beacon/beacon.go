// Package beacon computes with drand's public randomness: when a round is due, and whether
// a signature is its own.
//
// The scheme is bls-unchained-g1-rfc9380. Nobody can know a round before it is due, and
// nobody can choose it: a round has one valid signature, and most members of the network
// must make it. The package asks no clock and no network.
//
// Sources: drand's code and documentation; RFC 9380 (hash to curve).
package beacon

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cloudflare/circl/sign/bls"
)

// SignatureSize and publicKeySize are lengths in bytes: compressed points of G1 and G2.
const (
	SignatureSize = 48
	publicKeySize = 96
)

// Chain is what identifies a chain and makes its rounds verifiable.
type Chain struct {
	PublicKey   []byte // publicKeySize bytes
	GenesisTime int64  // Unix seconds: when round 1 is due
	GenesisSeed []byte // 32 bytes
	ID          string // drand's name of the chain, such as quicknet
	PeriodS     int    // seconds between rounds
}

// Round is one verified round of a chain.
type Round struct {
	Number     uint64
	Signature  []byte
	Randomness [sha256.Size]byte // SHA-256 of the signature
}

// ErrSignature means that a signature is not that of the round.
var ErrSignature = errors.New("beacon: the signature is not that of the round")

// TestID is the ID of chains that are made for tests, by the simulator of drand: their maker knows
// every round beforehand.
const TestID = "triprize-test"

// Quicknet returns drand's public chain with a period of 3 s.
func Quicknet() Chain {
	return Chain{
		PublicKey: mustHex("83cf0f2896adee7eb8b5f01fcad3912212c437e0073e911fb90022d3e760183c8c4b450b6a0a6c3ac6a5776a2d106451" +
			"0d1fec758c921cc22b0e17e63aaf4bcb5ed66304de9cf809bd274ca73bab4af5a6e9c76a4bc09e76eae8991ef5ece45a"),
		GenesisTime: 1692803367,
		GenesisSeed: mustHex("f477d5c89f21a17c863a7f937c6a6d15859414d2be09cd448d4279af331c5d3e"),
		ID:          "quicknet",
		PeriodS:     3,
	}
}

// Check returns an error when this is no chain of the scheme: a part has a wrong length or
// is out of its range, or the public key is no point of the group.
func (c Chain) Check() error {
	switch {
	case len(c.PublicKey) != publicKeySize:
		return fmt.Errorf("beacon: a public key has %d bytes, not %d", publicKeySize, len(c.PublicKey))
	case len(c.GenesisSeed) != sha256.Size:
		return fmt.Errorf("beacon: a genesis seed has %d bytes, not %d", sha256.Size, len(c.GenesisSeed))
	case c.GenesisTime < 0:
		return errors.New("beacon: the genesis is before 1970")
	case c.PeriodS < 1 || int64(c.PeriodS) > math.MaxUint32:
		return errors.New("beacon: the period is not 1 to 2^32 - 1 seconds")
	}
	key := new(bls.PublicKey[bls.KeyG2SigG1])
	if err := key.UnmarshalBinary(c.PublicKey); err != nil {
		return fmt.Errorf("beacon: the public key: %w", err)
	}
	if !key.Validate() {
		return errors.New("beacon: the public key is no key of the scheme")
	}
	return nil
}

// Hash returns SHA-256(period, 4 bytes || genesis, 8 bytes || public key || genesis seed ||
// id), which names the chain.
func (c Chain) Hash() [sha256.Size]byte {
	h := sha256.New()
	h.Write(binary.BigEndian.AppendUint32(nil, uint32(c.PeriodS)))     //nolint:gosec // Check bounds it
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(c.GenesisTime))) //nolint:gosec // the two's complement is what is meant
	h.Write(c.PublicKey)
	h.Write(c.GenesisSeed)
	h.Write([]byte(c.ID))
	return [sha256.Size]byte(h.Sum(nil))
}

// RoundAt returns the newest round that is due at t: floor((t − genesis) / period) + 1, or
// 0 before the genesis.
func (c Chain) RoundAt(t time.Time) uint64 {
	since := t.Unix() - c.GenesisTime // whole seconds, and a Duration ends after 292 years
	if since < 0 {
		return 0
	}
	return uint64(since/int64(c.PeriodS)) + 1 //nolint:gosec // it is not negative
}

// DueAt returns when a round is due. Round 0 is never due.
func (c Chain) DueAt(round uint64) time.Time {
	return time.Unix(c.GenesisTime+int64(round-1)*int64(c.PeriodS), 0) //nolint:gosec // rounds stay far below 2^63
}

// Verify returns the round of a number if signature is the chain's, or ErrSignature. It
// takes about 10 ms.
func (c Chain) Verify(number uint64, signature []byte) (Round, error) {
	key := new(bls.PublicKey[bls.KeyG2SigG1])
	if err := key.UnmarshalBinary(c.PublicKey); err != nil {
		return Round{}, fmt.Errorf("beacon.Verify: the public key: %w", err)
	}
	message := sha256.Sum256(binary.BigEndian.AppendUint64(nil, number))
	if len(signature) != SignatureSize || !bls.Verify(key, message[:], signature) {
		return Round{}, fmt.Errorf("beacon.Verify(round %d): %w", number, ErrSignature)
	}
	return Round{Number: number, Signature: signature, Randomness: sha256.Sum256(signature)}, nil
}

func mustHex(text string) []byte {
	b, err := hex.DecodeString(text)
	if err != nil {
		panic(err)
	}
	return b
}
