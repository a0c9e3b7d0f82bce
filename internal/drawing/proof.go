package drawing

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"sync"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/semaphore"

	"triprize.example/draw/fairdraw"
	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
)

// ErrNotFrozenList means that the stored list is not the one that was frozen: rows that never
// change were changed.
var ErrNotFrozenList = errors.New("drawing: the stored list is not the one that was frozen")

// Proofs makes proofs.
type Proofs struct{ db postgres.DB }

// pages bounds the statements that run at once for the lines of documents.
const pages = 2

// NewProofs returns Proofs. They read the lines of all documents together by two connections of
// db at a time.
func NewProofs(db postgres.DB) *Proofs {
	return &Proofs{db: limitedDB{DB: db, permits: semaphore.NewWeighted(pages)}}
}

// Proof is a document with the frozen list of a campaign, before its lines are read.
type Proof struct {
	Tag   string // identifies its bytes
	list  fairdraw.List
	write func(w io.Writer, sold iter.Seq2[fairdraw.SoldLine, error]) error
	db    postgres.DB
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
	return &Proof{Tag: hashOf([][]byte{id[:], []byte(strconv.Itoa(list.Count)), list.Root[:]}), list: list, db: s.db,
		write: func(w io.Writer, sold iter.Seq2[fairdraw.SoldLine, error]) error {
			return fairdraw.WriteList(w, list, sold)
		}}, nil
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
		Secret: drawn.Secret, Trust: drawn.Trust, Winners: winnersOf(drawn)}
	if err := s.addFreeze(ctx, &p, bound, drawn.Randomness); err != nil {
		return nil, err
	}
	return &Proof{Tag: tagOf(p, drawn), list: fairdraw.List{CampaignID: id, Count: p.Count, Root: p.Root}, db: s.db,
		write: func(w io.Writer, sold iter.Seq2[fairdraw.SoldLine, error]) error {
			return fairdraw.WriteProof(w, p, sold)
		}}, nil
}

// refusal returns why a campaign does not have a document; the text of then says when it will.
func (s *Proofs) refusal(ctx context.Context, id uuid.UUID, then string) error {
	c, err := campaign.Get(ctx, s.db, id)
	switch {
	case err != nil:
		return err
	case c.State == campaign.Cancelled:
		return fault.New(fault.StateConflict, "the campaign is cancelled and will not be drawn")
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

// winnersOf returns the winners as the document has them.
func winnersOf(d Draw) []fairdraw.ProofWinner {
	winners := make([]fairdraw.ProofWinner, len(d.Winners))
	for i, w := range d.Winners {
		winners[i] = fairdraw.ProofWinner{Prize: w.Prize, Name: w.Name, Layer: w.Layer, Column: w.Column, PurchaseID: w.PurchaseID}
		if w.Column == nil {
			winners[i].Awarded = new(bool) // false
		}
	}
	return winners
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
func (d *Proof) lines(ctx context.Context) iter.Seq2[fairdraw.SoldLine, error] {
	return func(yield func(fairdraw.SoldLine, error) bool) {
		var tree fairdraw.Tree
		for line, err := range ListOf(ctx, d.db, d.list.CampaignID) {
			if err == nil {
				err = tree.Append(line)
			}
			if !yield(line, err) || err != nil {
				return
			}
		}
		if tree.Root() != d.list.Root || tree.Count() != d.list.Count {
			yield(fairdraw.SoldLine{}, fmt.Errorf("%w: %d lines have the root %s", ErrNotFrozenList, tree.Count(), tree.Root()))
		}
	}
}

// limitedDB is a database with a bound on concurrent queries for several rows. A query holds its
// permit until its rows are closed.
type limitedDB struct {
	postgres.DB
	permits *semaphore.Weighted
}

// Query implements postgres.DB.
func (d limitedDB) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := d.permits.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	rows, err := d.DB.Query(ctx, sql, args...)
	if err != nil {
		d.permits.Release(1)
		return nil, err
	}
	return &limitedRows{Rows: rows, leave: sync.OnceFunc(func() { d.permits.Release(1) })}, nil
}

// limitedRows are rows that release the permit of their query.
type limitedRows struct {
	pgx.Rows
	leave func()
}

// Close implements pgx.Rows.
func (p *limitedRows) Close() {
	p.Rows.Close()
	p.leave()
}
