package drawing

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"github.com/google/uuid"
	"golang.org/x/sync/semaphore"

	"triprize.example/draw/fairdraw"
	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// ErrNotFrozenList means that the stored list is not the one that was frozen: rows that never
// change were changed.
var ErrNotFrozenList error = contradiction("the stored list is not the one that was frozen")

// Proofs makes proofs.
type Proofs struct {
	db      postgres.DB
	permits *semaphore.Weighted
}

// pages bounds the statements that run at once for the lines of documents.
const pages = 2

// NewProofs returns Proofs. They read the lines of all documents together by two connections of
// db at a time.
func NewProofs(db postgres.DB) *Proofs {
	return &Proofs{db: db, permits: semaphore.NewWeighted(pages)}
}

// linesUnder returns lines of a frozen list as soon as a connection may be used for them.
func (s *Proofs) linesUnder(ctx context.Context, id uuid.UUID, number, subtrees int) ([]fairdraw.SoldLine, error) {
	if err := s.permits.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer s.permits.Release(1)
	return linesUnder(ctx, s.db, id, number, subtrees)
}

// Proof is a document with the frozen list of a campaign, before its lines are read.
type Proof struct {
	Tag   string // identifies its bytes
	list  fairdraw.List
	write func(w io.Writer, sold soldLines) error
	from  *Proofs
}

// List returns the list document of a campaign. The Error is state-conflict before the
// freeze, and not-found when there is no campaign.
func (s *Proofs) List(ctx context.Context, id uuid.UUID) (*Proof, error) {
	frozen, ok, err := FreezeOf(ctx, s.db, id)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, s.refusal(ctx, id, "its list is there when it is frozen")
	}
	list := fairdraw.List{CampaignID: id, Count: frozen.Count, Root: frozen.Root}
	return &Proof{Tag: hashOf([][]byte{id[:], []byte(strconv.Itoa(list.Count)), list.Root[:]}), list: list, from: s,
		write: func(w io.Writer, sold soldLines) error { return fairdraw.WriteList(w, list, sold) }}, nil
}

// Document returns the proof document of a campaign. The Error is state-conflict when the
// campaign is not drawn, and not-found when there is none.
func (s *Proofs) Document(ctx context.Context, id uuid.UUID) (*Proof, error) {
	bound, published, err := findPlan(ctx, s.db, id)
	if err != nil {
		return nil, err
	}
	drawn, isDrawn, err := DrawOf(ctx, s.db, id)
	if err != nil {
		return nil, err
	}
	if !published || !isDrawn {
		return nil, s.refusal(ctx, id, "its proof is there when it is drawn")
	}
	p := fairdraw.Proof{Version: fairdraw.Version, CampaignID: id, Rules: bound.text, Commitment: bound.commitment,
		Secret: drawn.Secret, Trust: drawn.Trust, Winners: drawn.Winners}
	if err := s.addFreeze(ctx, &p, bound, drawn.Randomness); err != nil {
		return nil, err
	}
	return &Proof{Tag: tagOf(p, drawn), list: fairdraw.List{CampaignID: id, Count: p.Count, Root: p.Root}, from: s,
		write: func(w io.Writer, sold soldLines) error { return fairdraw.WriteProof(w, p, sold) }}, nil
}

// refusal returns why a campaign does not have a document; the text of then says when it will.
func (s *Proofs) refusal(ctx context.Context, id uuid.UUID, then string) error {
	c, err := campaign.Get(ctx, s.db, id)
	switch {
	case err != nil:
		return err
	case c.State == campaign.Cancelled:
		return errCancelled
	default:
		return fault.New(fault.StateConflict, "the campaign is %s: %s", c.State, then)
	}
}

// addFreeze adds what was frozen, and the round.
func (s *Proofs) addFreeze(ctx context.Context, p *fairdraw.Proof, bound plan, randomness []byte) error {
	frozen, ok, err := FreezeOf(ctx, s.db, p.CampaignID)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("drawing.Document(%s): it is drawn and not frozen", p.CampaignID)
	}
	p.Root, p.Count, p.FrozenAt, p.Round = frozen.Root, frozen.Count, fairdraw.At(frozen.FrozenAt), frozen.Round
	p.FreezeHash = fairdraw.FreezeHash(frozen.Record)
	if frozen.Round == nil {
		return nil
	}
	if bound.rules.Beacon == nil {
		return fmt.Errorf("drawing.Document(%s): the freeze record names a round, and the rules no beacon", p.CampaignID)
	}
	hash, chain, number := bound.rules.Beacon.ChainHash, bound.chain, *frozen.Round
	round, ok, err := roundWith(ctx, s.db, hash, number, randomness)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("drawing.Document(%s): round %d of the chain %s is not stored", p.CampaignID, number, hash)
	}
	p.Beacon = &fairdraw.ProofBeacon{ChainHash: hash, PublicKey: chain.PublicKey, GenesisTime: chain.GenesisTime,
		GenesisSeed: chain.GenesisSeed, BeaconID: chain.ID, PeriodS: chain.PeriodS, Round: number,
		Signature: round.Signature, Randomness: round.Randomness}
	return nil
}

// tagOf identifies the bytes of a document without its lines: the root stands for these,
// and the commitment for the rules.
func tagOf(p fairdraw.Proof, d Draw) string {
	winners, _ := json.Marshal(p.Winners) // cannot fail
	return hashOf([][]byte{[]byte(p.Version), p.CampaignID[:], p.Commitment[:], p.FreezeHash[:], p.Secret[:], d.Randomness, []byte(p.Trust), winners})
}

func hashOf(parts [][]byte) string {
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Write writes the document. After an error it is not complete. ErrNotFrozenList is one.
func (d *Proof) Write(ctx context.Context, w io.Writer) error {
	return d.write(w, d.lines(ctx))
}

// lines yields the stored list. It ends in an error unless it is the frozen one.
func (d *Proof) lines(ctx context.Context) soldLines {
	return func(yield func(fairdraw.SoldLine, error) bool) {
		var tree fairdraw.Tree
		for line, err := range listBy(func(number, subtrees int) ([]fairdraw.SoldLine, error) {
			return d.from.linesUnder(ctx, d.list.CampaignID, number, subtrees)
		}) {
			if err == nil {
				err = tree.Append(line)
			}
			if !yield(line, err) || err != nil {
				return
			}
		}
		if err := checkFrozen(&tree, d.list.Root, d.list.Count); err != nil {
			yield(fairdraw.SoldLine{}, err)
		}
	}
}
