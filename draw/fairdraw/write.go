package fairdraw

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"strconv"

	"github.com/google/uuid"
)

// The members of a proof document in canonical order: those before its list of sold
// positions, and those after.
type (
	proofHead struct {
		Beacon     *ProofBeacon    `json:"beacon"`
		CampaignID uuid.UUID       `json:"campaign_id"`
		Commitment Hash            `json:"commitment"`
		Count      int             `json:"count"`
		FreezeHash Hash            `json:"freeze_hash"`
		FrozenAt   Instant         `json:"frozen_at"`
		Root       Hash            `json:"root"`
		Round      *uint64         `json:"round"`
		Rules      json.RawMessage `json:"rules"`
		Secret     Hash            `json:"secret"`
	}
	proofTail struct {
		Trust   string        `json:"trust"`
		Version string        `json:"version"`
		Winners []ProofWinner `json:"winners"`
	}
)

// WriteProof writes the proof document with its list of sold positions, in canonical form.
// It holds one line at a time. An error in the list ends the document where it is: it must
// not be taken for a whole one. That the parts fit together is not its business.
func WriteProof(w io.Writer, p Proof, sold iter.Seq2[SoldLine, error]) error {
	head, tail, err := p.parts()
	if err != nil {
		return fmt.Errorf("fairdraw.WriteProof(%s): %w", p.CampaignID, err)
	}
	if err := writeAround(w, head, sold, append([]byte{','}, tail[1:]...)); err != nil {
		return fmt.Errorf("fairdraw.WriteProof(%s): %w", p.CampaignID, err)
	}
	return nil
}

// writeAround writes the object head with the list of sold positions as one more member, and
// behind it tail, which ends the object.
func writeAround(w io.Writer, head []byte, sold iter.Seq2[SoldLine, error], tail []byte) error {
	out := bufio.NewWriterSize(w, 64<<10)
	text := append(head[:len(head)-1:len(head)-1], `,"sold":[`...)
	for l, err := range sold {
		if err == nil {
			err = l.checkValues()
		}
		if err != nil {
			return fmt.Errorf("the sold list: %w", err)
		}
		if _, err := out.Write(l.appendTo(text)); err != nil {
			return err
		}
		text = append(text[:0], ',') // before the next line
	}
	if len(text) == 1 {
		text = text[:0] // there is none
	}
	if _, err := out.Write(append(append(text, ']'), tail...)); err != nil {
		return err
	}
	return out.Flush()
}

// parts returns the objects before and after the list of sold positions.
func (p Proof) parts() (head, tail []byte, err error) {
	if err := isCanonicalObject(p.Rules); err != nil {
		return nil, nil, malformed("rules", "%s", err)
	}
	if p.Winners == nil {
		p.Winners = []ProofWinner{}
	}
	if err := p.checkValues(); err != nil {
		return nil, nil, err
	}
	head, err = canonical(proofHead{
		Beacon: p.Beacon, CampaignID: p.CampaignID, Commitment: p.Commitment, Count: p.Count, FreezeHash: p.FreezeHash,
		FrozenAt: p.FrozenAt, Root: p.Root, Round: p.Round, Rules: p.Rules, Secret: p.Secret,
	})
	if err != nil {
		return nil, nil, err
	}
	if tail, err = canonical(proofTail{Trust: p.Trust, Version: p.Version, Winners: p.Winners}); err != nil {
		return nil, nil, err
	}
	return head, tail, nil
}

func (l SoldLine) checkValues() error {
	if min(l.Layer, l.Column) < 0 || max(l.Layer, l.Column) > MaxInteger {
		return malformed("sold", "cannot have %v: a number is no integer from 0 to 2^53 − 1", l.Position())
	}
	return nil
}

// appendTo appends the line as it stands in a proof document.
func (l SoldLine) appendTo(text []byte) []byte {
	text = append(text, `{"column":`...)
	text = strconv.AppendInt(text, int64(l.Column), 10)
	text = append(text, `,"holder":"`...)
	text = hex.AppendEncode(text, l.Holder[:])
	text = append(text, `","layer":`...)
	text = strconv.AppendInt(text, int64(l.Layer), 10)
	text = append(text, `,"purchase_id":"`...)
	text = appendUUID(text, l.PurchaseID)
	return append(text, `"}`...)
}

// appendUUID appends what id.String returns, without making a string.
func appendUUID(text []byte, id uuid.UUID) []byte {
	for i, part := range [][]byte{id[:4], id[4:6], id[6:8], id[8:10], id[10:]} {
		if i > 0 {
			text = append(text, '-')
		}
		text = hex.AppendEncode(text, part)
	}
	return text
}
