package inventory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/platform/postgres"
)

// Stock is what a transaction can give away: the free positions it has found, and
// the positions that requests named, free or not. The first request that selects a
// position gets it. A Stock is for one goroutine.
type Stock struct {
	free  map[PositionID]*Free
	named map[PositionID]*Found
	pools map[Pool][]*Free    // by rank
	runs  map[Pool]*layerRuns // for requests of adjacent positions
	forms map[uuid.UUID]shape.Shape
	kept  map[PositionID]Keeper // by this transaction
	gone  map[Pool]int          // sold or blocked; counted for campaigns, and for layers that may not have enough
}

// Keeper is what keeps a position, and whose it is: a hold, or a purchase that is not paid yet.
type Keeper struct {
	Client, UserID string
	fault.About
}

// HeldBy returns a hold as a keeper.
func HeldBy(client, userID string, holdID uuid.UUID) Keeper {
	return Keeper{client, userID, fault.About{Kind: fault.AboutHold, ID: holdID.String()}}
}

// ReservedBy returns a purchase that is not paid yet as a keeper.
func ReservedBy(client, userID string, purchaseID, jobID uuid.UUID) Keeper {
	return Keeper{client, userID, fault.About{Kind: fault.AboutPurchase, ID: purchaseID.String(), JobID: jobID.String()}}
}

// keeper returns what keeps a position, or nothing.
func (f *Found) keeper() Keeper {
	switch {
	case f.State == Held && f.HoldID != nil:
		return HeldBy(f.Client, f.UserID, *f.HoldID)
	case f.State == Reserved && f.PurchaseID != nil && f.JobID != nil:
		return ReservedBy(f.Client, f.UserID, *f.PurchaseID, *f.JobID)
	}
	return Keeper{}
}

// Request is a request for positions that a Stock has to serve.
type Request struct {
	CampaignID uuid.UUID
	Shape      shape.Shape // of the campaign
	Gone       int         // its positions that are sold or blocked
	Selection
	Hold  []shape.Item // instead of a selection: the positions of a hold
	Avoid int          // how many random positions Select may have to skip for it
}

// FindStock reads what requests could get, and locks the free positions it finds:
// enough of each pool for all requests together, and the positions that requests
// name.
func FindStock(ctx context.Context, tx pgx.Tx, requests []Request) (*Stock, error) {
	needs, named := wanted(requests)
	free, err := findFree(ctx, tx, needs)
	if err != nil {
		return nil, err
	}
	found, err := Find(ctx, tx, named)
	if err != nil {
		return nil, err
	}
	sought := runsWanted(requests)
	layers, err := findRuns(ctx, tx, sought)
	if err != nil {
		return nil, err
	}
	s := newStock(free, found, layers)
	for _, r := range requests {
		s.forms[r.CampaignID], s.gone[Pool{r.CampaignID, 0}] = r.Shape, r.Gone
	}
	// When a layer has too few, a refusal must say whether it is sold out.
	short := slices.DeleteFunc(needs, func(n need) bool { return n.Layer == 0 || len(s.pools[n.Pool]) >= n.Count })
	for _, n := range sought {
		if r := s.runs[n.Pool]; n.Layer != 0 && (r == nil || len(r.seats) < n.Count) {
			short = append(short, n.need)
		}
	}
	gone, err := countGone(ctx, tx, short)
	for i, n := range gone {
		s.gone[short[i].Pool] = n
	}
	return s, err
}

// wanted lists what requests need: from each pool as many positions as all requests
// in its campaign could take. Chosen positions count too, because they may be among
// those that are found by rank.
func wanted(requests []Request) (needs []need, named []PositionID) {
	most, pools, seen := make(map[uuid.UUID]int), make(map[Pool]bool), make(map[PositionID]bool)
	name := func(id uuid.UUID, p shape.Position) {
		if at := (PositionID{id, p}); !seen[at] {
			seen[at] = true
			named = append(named, at)
		}
	}
	for _, r := range requests {
		most[r.CampaignID] += r.Size() + r.Avoid
		for _, p := range r.Positions {
			name(r.CampaignID, p)
		}
		for _, p := range r.Hold {
			name(r.CampaignID, p.Position)
		}
	}
	for _, r := range requests {
		if pool := (Pool{r.CampaignID, r.Layer}); r.Quantity > 0 && !r.Adjacent && !pools[pool] {
			pools[pool] = true
			needs = append(needs, need{Pool: pool, Count: most[r.CampaignID]})
		}
	}
	return needs, named
}

// newStock makes a stock from the results of findFree, Find and findRuns. A position that
// was found twice is in it once.
func newStock(free []Free, named []Found, layers []foundRuns) *Stock {
	s := &Stock{free: make(map[PositionID]*Free, len(free)), named: make(map[PositionID]*Found, len(named)),
		pools: make(map[Pool][]*Free), runs: make(map[Pool]*layerRuns), forms: make(map[uuid.UUID]shape.Shape), kept: make(map[PositionID]Keeper), gone: make(map[Pool]int)}
	for i := range free {
		f := &free[i]
		if s.free[f.PositionID] != nil {
			continue
		}
		s.free[f.PositionID] = f
		for _, p := range []Pool{{f.CampaignID, 0}, {f.CampaignID, f.Layer}} {
			s.pools[p] = append(s.pools[p], f)
		}
	}
	for _, p := range s.pools {
		slices.SortFunc(p, func(x, y *Free) int { return x.Rank - y.Rank })
	}
	for i := range named {
		f := &named[i]
		s.named[f.PositionID] = f
		if f.State == Available && s.free[f.PositionID] == nil {
			s.free[f.PositionID] = &f.Free
		}
	}
	for _, l := range layers {
		s.addRuns(l)
	}
	return s
}

// Named returns the positions that requests named, as they were read.
func (s *Stock) Named() map[PositionID]*Found { return s.named }

// Select returns the positions of a selection by layer and column, or an Error:
// position-taken, sold-out (final) or none-available (for now). at is the JSON
// pointer of the selection in its request. Random positions for which avoid
// returns true are skipped; avoid may be nil. Select takes nothing out of the
// stock: call Hold or Sell with the result.
func (s *Stock) Select(campaignID uuid.UUID, sel Selection, at string, avoid func(shape.Position) bool) ([]*Free, error) {
	if len(sel.Positions) > 0 {
		return s.choose(campaignID, sel.Positions, at)
	}
	if sel.Adjacent {
		return s.adjacent(campaignID, sel, avoid)
	}
	picked := s.first(Pool{campaignID, sel.Layer}, sel.Quantity, avoid)
	if picked == nil {
		return nil, s.whyNone(campaignID, sel, fault.New(fault.NoneAvailable, "asked for %d, and fewer are free at the moment; held and reserved positions may become free again", sel.Quantity))
	}
	return sorted(picked), nil
}

// choose returns the chosen positions, or an Error that lists those that are taken.
func (s *Stock) choose(campaignID uuid.UUID, positions []shape.Position, at string) ([]*Free, error) {
	picked := make([]*Free, 0, len(positions))
	var gone []fault.Field
	var taken []*Found
	for i, p := range positions {
		if f := s.free[PositionID{campaignID, p}]; f != nil && !f.taken {
			picked = append(picked, f)
		} else {
			gone = append(gone, TakenField(at, i, p, s.forms[campaignID]))
			taken = append(taken, s.named[PositionID{campaignID, p}])
		}
	}
	if len(gone) > 0 {
		refusal := fault.Taken(gone...)
		refusal.RetryAt = FreeAt(taken, time.Now())
		return nil, refusal
	}
	return sorted(picked), nil
}

// FreeAt returns when the last of these taken positions is free if nobody buys it, as it was read
// at now; zero: nobody knows, since one of them is sold or was given away a moment ago.
func FreeAt(taken []*Found, now time.Time) (at time.Time) {
	for _, f := range taken {
		if f == nil || f.State != Held && f.State != Reserved || f.Remaining <= 0 {
			return time.Time{}
		}
		if ends := now.Add(f.Remaining).UTC().Truncate(time.Millisecond); ends.After(at) {
			at = ends
		}
	}
	return at
}

// first returns the first n positions of a pool by rank that are neither taken nor
// to be avoided, or nil when there are not enough.
func (s *Stock) first(pool Pool, n int, avoid func(shape.Position) bool) []*Free {
	left := s.pools[pool]
	for len(left) > 0 && left[0].taken {
		left = left[1:] // skip the taken ones at the front for good
	}
	s.pools[pool] = left
	picked := make([]*Free, 0, n)
	for _, f := range left {
		if len(picked) == n {
			break
		}
		if !f.taken && (avoid == nil || !avoid(f.Position)) {
			picked = append(picked, f)
		}
	}
	if len(picked) < n {
		return nil
	}
	return picked
}

// whyNone says whether everything that is not blocked is sold, which is final, or it is forNow.
// It decides by the counts, because the search skips rows that other transactions have locked.
func (s *Stock) whyNone(campaignID uuid.UUID, sel Selection, forNow error) error {
	switch form := s.forms[campaignID]; {
	case s.gone[Pool{campaignID, 0}] == form.Count():
		return fault.New(fault.SoldOut, "all positions on sale are sold")
	case sel.Layer > 0 && s.gone[Pool{campaignID, sel.Layer}] == form.InLayer(sel.Layer):
		return fault.New(fault.SoldOut, "all positions on sale in %s are sold", form.LayerName(sel.Layer))
	default:
		return forNow
	}
}

// Kept returns the positions of an active hold by layer and column. When one of
// them is not held by it the data is wrong: that is postgres.ErrRows, not a refusal.
func (s *Stock) Kept(h Hold) ([]*Free, error) {
	picked := make([]*Free, 0, len(h.Positions))
	for _, p := range h.Positions {
		f := s.named[PositionID{h.CampaignID, p.Position}]
		if f == nil || f.State != Held || f.HoldID == nil || *f.HoldID != h.ID {
			return nil, fmt.Errorf("%w: hold %s does not keep %d/%d", postgres.ErrRows, h.ID, p.Layer, p.Column)
		}
		picked = append(picked, &f.Free)
	}
	return sorted(picked), nil
}

// NameOwn makes a position-taken Error say that it is about a hold of the same client and user, which it can
// buy, or about its purchase that it can still pay, if one has a position of the selection. Other errors stay as they are.
func (s *Stock) NameOwn(err error, campaignID uuid.UUID, client, userID string, sel Selection) error {
	if refusal, ok := errors.AsType[*fault.Error](err); ok && refusal.Code == fault.PositionTaken {
		for _, p := range sel.Positions {
			if own := s.keeperOf(PositionID{campaignID, p}); own.Client == client && own.UserID == userID {
				refusal.About = own.About
				break
			}
		}
	}
	return err
}

// keeperOf returns what keeps a position now, or nothing.
func (s *Stock) keeperOf(at PositionID) Keeper {
	if f := s.named[at]; f != nil && f.State != Available && !f.taken {
		return f.keeper()
	}
	return s.kept[at]
}

// Keep takes positions out of the stock, as kept by a new hold or purchase.
func (s *Stock) Keep(picked []*Free, by Keeper) {
	s.Hold(picked)
	for _, f := range picked {
		s.kept[f.PositionID] = by
	}
}

// Hold takes positions out of the stock, as held.
func (s *Stock) Hold(picked []*Free) {
	for _, f := range picked {
		f.taken = true
	}
}

// Sell takes positions out of the stock, as sold.
func (s *Stock) Sell(picked []*Free) {
	s.Hold(picked)
	for _, f := range picked {
		s.gone[Pool{f.CampaignID, 0}]++
		s.gone[Pool{f.CampaignID, f.Layer}]++
	}
}

// sorted sorts positions by layer and column, in place.
func sorted(picked []*Free) []*Free {
	slices.SortFunc(picked, func(x, y *Free) int {
		if x.Before(y.Position) {
			return -1
		}
		return 1
	})
	return picked
}
