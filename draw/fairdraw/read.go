package fairdraw

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// maxMember bounds what one member of a document, except its list of sold positions, may
// take in memory, in bytes: a document comes from anywhere.
const maxMember = 16 << 20

// proofMembers are the members of a proof document in canonical order.
var proofMembers = []string{
	"beacon", "campaign_id", "commitment", "count", "freeze_hash", "frozen_at", "root", "round", "rules", "secret",
	"sold", "trust", "version", "winners",
}

// ReadProof reads a proof document and hands over its list of sold positions line by line.
// It takes exactly what WriteProof writes: a *FormError says where a document is spelled in
// another way, or has not exactly its members. Errors of r and of each come back wrapped.
// That the parts fit together is for the other checks.
func ReadProof(r io.Reader, each func(SoldLine) error) (Proof, error) {
	s := newScanner(r)
	var head proofHead
	var tail proofTail
	values := map[string]any{
		"beacon": &head.Beacon, "campaign_id": &head.CampaignID, "commitment": &head.Commitment, "count": &head.Count,
		"freeze_hash": &head.FreezeHash, "frozen_at": &head.FrozenAt, "root": &head.Root, "round": &head.Round,
		"secret": &head.Secret, "trust": &tail.Trust, "version": &tail.Version, "winners": &tail.Winners,
	}
	for i, name := range proofMembers {
		if err := s.name(proofMembers, i); err != nil {
			return Proof{}, fmt.Errorf("fairdraw.ReadProof: %w", err)
		}
		var err error
		switch name {
		case "rules":
			head.Rules, err = s.rules()
		case "sold":
			err = s.sold(each)
		default:
			err = s.member(name, values[name])
		}
		if err != nil {
			return Proof{}, fmt.Errorf("fairdraw.ReadProof: %w", err)
		}
	}
	p := Proof{
		Version: tail.Version, CampaignID: head.CampaignID, Rules: head.Rules, Commitment: head.Commitment, Secret: head.Secret,
		Root: head.Root, Count: head.Count, FrozenAt: head.FrozenAt, Round: head.Round, FreezeHash: head.FreezeHash,
		Beacon: head.Beacon, Winners: tail.Winners, Trust: tail.Trust,
	}
	if err := s.end(); err != nil {
		return Proof{}, fmt.Errorf("fairdraw.ReadProof: %w", err)
	}
	if err := p.checkValues(); err != nil {
		return Proof{}, fmt.Errorf("fairdraw.ReadProof: %w", err)
	}
	return p, nil
}

// checkValues returns nil if every value is one that a document can have.
func (p Proof) checkValues() error {
	switch {
	case p.Version != Version:
		return malformed("version", "is %q; this procedure is %q", excerpt([]byte(p.Version)), Version)
	case p.Count < 0 || p.Count > MaxInteger:
		return malformed("count", "is %d, which is no integer from 0 to 2^53 − 1", p.Count)
	case p.Round != nil && *p.Round > MaxInteger:
		return malformed("round", "is %d, which is no integer from 0 to 2^53 − 1", *p.Round)
	case p.Winners == nil:
		return malformed("winners", "is no list")
	}
	if b := p.Beacon; b != nil {
		if err := b.checkValues(); err != nil {
			return err
		}
	}
	for i, w := range p.Winners {
		if err := w.checkValues(); err != nil {
			return malformed("winners", "at %d: %s", i, err)
		}
	}
	return nil
}

// publicKeySize is the length of a chain's public key in bytes: a compressed point of G2.
const publicKeySize = 96

// checkValues refuses other lengths than those of the scheme: the hash of a chain is over its parts
// in a row, so a byte that moves from one to the next would not show.
func (b ProofBeacon) checkValues() error {
	switch {
	case b.GenesisTime < 0 || b.GenesisTime > MaxInteger || b.PeriodS < 0 || b.PeriodS > MaxInteger || b.Round > MaxInteger:
		return malformed("beacon", "has a number that is no integer from 0 to 2^53 − 1")
	case len(b.PublicKey) != publicKeySize:
		return malformed("beacon", "has a public key of %d bytes, not %d", len(b.PublicKey), publicKeySize)
	case len(b.GenesisSeed) != sha256.Size:
		return malformed("beacon", "has a genesis seed of %d bytes, not %d", len(b.GenesisSeed), sha256.Size)
	}
	return nil
}

func (w ProofWinner) checkValues() error {
	won := w.Column != nil && w.PurchaseID != nil && w.Awarded == nil
	not := w.Column == nil && w.PurchaseID == nil && w.Awarded != nil && !*w.Awarded
	if !won && !not {
		return fmt.Errorf("prize %d has neither a column and a purchase nor \"awarded\": false", w.Prize)
	}
	for _, n := range []int{w.Prize, w.Layer, value(w.Column)} {
		if n < 0 || n > MaxInteger {
			return fmt.Errorf("%d is no integer from 0 to 2^53 − 1", n)
		}
	}
	return nil
}

func value(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

// rules reads the rules document as it stands.
func (s *scanner) rules() (json.RawMessage, error) {
	raw, err := s.value("rules")
	if err != nil {
		return nil, err
	}
	if err := isCanonicalObject(raw); err != nil {
		return nil, malformed("rules", "%s", err)
	}
	return raw, nil
}

// sold reads the list of sold positions.
func (s *scanner) sold(each func(SoldLine) error) error {
	if err := s.expect("sold", '['); err != nil {
		return err
	}
	if next, err := s.peek(); err != nil || next == ']' {
		return errors.Join(err, s.skip())
	}
	for i := 0; ; i++ {
		line, err := s.line(i)
		if err != nil {
			return err
		}
		if err := each(line); err != nil {
			return err
		}
		if next, err := s.peek(); err != nil || next == ']' {
			return errors.Join(err, s.skip())
		}
		if err := s.expect("sold", ','); err != nil {
			return err
		}
	}
}
