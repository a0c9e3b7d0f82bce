package drawing

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sort"

	"github.com/google/uuid"

	"triprize.example/draw/beacon"
	"triprize.example/draw/fairdraw"
	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
)

// ProofState is what is public of the draw of a campaign.
type ProofState struct {
	Campaign   campaign.Campaign
	Commitment *fairdraw.Hash // nil before publication
	Rules      []byte         // canonical JSON; nil before publication
	Trust      string         // that the rules allow; empty before publication
	Chain      *beacon.Chain  // of the beacon in the rules; nil: none, or before publication
	Progress   Progress
	Freeze     *fairdraw.FreezeRecord // nil: not frozen yet
	Draw       *Draw                  // nil: not drawn yet
	Winners    []NamedWinner          // of the draw
}

// ProofStateOf returns the state of a draw, or a not-found Error. It reads the parts one after
// the other. A part never changes once it is stored, so only one that has just been stored
// may be missing.
func ProofStateOf(ctx context.Context, db postgres.DB, id uuid.UUID) (s ProofState, err error) {
	if s.Campaign, err = campaign.Get(ctx, db, id); err != nil {
		return s, err
	}
	p, published, err := findPlan(ctx, db, id)
	if err != nil || !published {
		return s, err
	}
	s.Rules, s.Commitment, s.Trust = p.text, &p.commitment, p.trust()
	if p.rules.Beacon != nil {
		s.Chain = &p.chain
	}
	drawn, isDrawn, err := DrawOf(ctx, db, id)
	if err != nil {
		return s, err
	}
	if isDrawn {
		form, err := campaign.ShapeOf(ctx, db, id)
		if err != nil {
			return s, err
		}
		s.Draw, s.Winners, s.Campaign.State = &drawn, named(drawn.Winners, form), campaign.Completed
	}
	progress, err := ReadProgress(ctx, db, []uuid.UUID{id})
	if err != nil {
		return s, err
	}
	s.Progress = progress[id]
	if s.Progress.Record == nil {
		return s, nil
	}
	s.Freeze = new(fairdraw.FreezeRecord)
	if err := json.Unmarshal(s.Progress.Record, s.Freeze); err != nil {
		return s, fmt.Errorf("drawing.ProofStateOf(%s): the freeze record: %w", id, err)
	}
	return s, nil
}

// Purchase returns the leaves of a purchase with their paths to the frozen root. The Error
// is state-conflict before the freeze, and when the purchase takes no part in the draw.
func (s *Proofs) Purchase(ctx context.Context, p purchase.Purchase) (fairdraw.PurchaseProof, error) {
	var none fairdraw.PurchaseProof
	if err := s.takesPart(ctx, p); err != nil {
		return none, err
	}
	frozen, ok, err := FreezeOf(ctx, s.db, p.CampaignID)
	switch {
	case err != nil:
		return none, err
	case !ok:
		return none, fault.New(fault.StateConflict, "the list of buyers is not frozen yet")
	}
	subtrees, err := SubtreesOf(ctx, s.db, frozen.CampaignID)
	if err != nil {
		return none, err
	}
	made := fairdraw.PurchaseProof{CampaignID: p.CampaignID, Root: frozen.Root, Count: frozen.Count}
	numbers, among := byPage(p.Items, subtrees)
	for _, number := range numbers {
		lines, err := s.linesUnder(ctx, p.CampaignID, number, 1)
		if err != nil {
			return none, err
		}
		leaves, err := leavesOf(p, among[number], lines, subtrees, number)
		if err != nil {
			return none, fmt.Errorf("drawing.Purchase(%s): %w: %w", p.ID, ErrNotFrozenList, err)
		}
		made.Leaves = append(made.Leaves, leaves...)
	}
	if err := made.CheckPaths(); err != nil { // a buyer must never get a proof that does not hold
		return none, fmt.Errorf("drawing.Purchase(%s): %w: %w", p.ID, ErrNotFrozenList, err)
	}
	return made, nil
}

// byPage sorts the positions of a purchase by the subtree that they stand under. It
// returns the numbers of these in order.
func byPage(items []purchase.Item, subtrees []fairdraw.Subtree) (numbers []int, among map[int][]shape.Position) {
	among = make(map[int][]shape.Position)
	for _, item := range items {
		behind := sort.Search(len(subtrees), func(i int) bool { return item.Before(subtrees[i].First) })
		number := max(behind-1, 0)
		among[number] = append(among[number], item.Position)
	}
	return slices.Sorted(maps.Keys(among)), among
}

// leavesOf returns the leaves of a purchase that stand under one subtree, whose lines are
// all the lines there.
func leavesOf(p purchase.Purchase, own []shape.Position, lines []fairdraw.SoldLine, subtrees []fairdraw.Subtree, number int) ([]fairdraw.ProofLeaf, error) {
	page, nodes := make([]fairdraw.Hash, len(lines)), make([]fairdraw.Hash, len(subtrees))
	for i, line := range lines {
		page[i] = fairdraw.LeafHash(line.Leaf())
	}
	for i, subtree := range subtrees {
		nodes[i] = subtree.Hash
	}
	slices.SortFunc(own, func(a, b shape.Position) int {
		return cmp.Or(cmp.Compare(a.Layer, b.Layer), cmp.Compare(a.Column, b.Column))
	})
	leaves := make([]fairdraw.ProofLeaf, len(own))
	for i, at := range own {
		index := sort.Search(len(lines), func(i int) bool { return !lines[i].Position().Before(at) })
		leaves[i] = fairdraw.ProofLeaf{Layer: at.Layer, Column: at.Column, PurchaseID: p.ID, Nonce: p.Nonce[:], UserID: p.UserID, Index: number*fairdraw.SubtreeLeaves + index}
		if index == len(lines) || lines[index] != leaves[i].Line() {
			return nil, fmt.Errorf("position %d/%d is not in the list", at.Layer, at.Column)
		}
		var err error
		if leaves[i].Path, err = fairdraw.InclusionPath(page, nodes, leaves[i].Index); err != nil {
			return nil, err
		}
	}
	return leaves, nil
}

// takesPart returns nil if a purchase is sold in a campaign that is drawn some day.
func (s *Proofs) takesPart(ctx context.Context, p purchase.Purchase) error {
	c, err := campaign.Get(ctx, s.db, p.CampaignID)
	switch {
	case err != nil:
		return err
	case c.State == campaign.Cancelled:
		return errCancelled
	case p.Erased:
		return fault.New(fault.Gone, "the user of the purchase is erased: nobody can show any more which line of the list it has")
	case p.State.Open():
		return fault.New(fault.StateConflict, "the purchase is %s: it is not paid", p.State)
	case p.State != purchase.Completed:
		return fault.New(fault.StateConflict, "the purchase is %s: it does not take part in the draw", p.State)
	}
	return nil
}
