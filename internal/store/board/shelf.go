package board

import (
	"slices"

	"github.com/google/uuid"
)

// Shelf is what a transaction can give away: the free positions it has found, by
// place, and those that somebody named, as they are. Whoever is first takes.
type Shelf struct {
	free  map[Chosen]*Free
	named map[Chosen]*Found
	pools map[pool][]*Free // by rank
	taken map[*Free]bool
}

// pool is a layer of a campaign, or with layer 0 all of it.
type pool struct {
	campaignID uuid.UUID
	layer      int
}

// NewShelf makes a shelf of what FindFree and Find have returned. A position that
// was found more than once is one position.
func NewShelf(free []Free, named []Found) *Shelf {
	s := &Shelf{free: make(map[Chosen]*Free, len(free)), named: make(map[Chosen]*Found, len(named)),
		pools: make(map[pool][]*Free), taken: make(map[*Free]bool)}
	for i := range free {
		f := &free[i]
		at := Chosen{f.CampaignID, f.Position}
		if s.free[at] != nil {
			continue
		}
		s.free[at] = f
		for _, p := range []pool{{f.CampaignID, 0}, {f.CampaignID, f.Layer}} {
			s.pools[p] = append(s.pools[p], f)
		}
	}
	for _, p := range s.pools {
		slices.SortFunc(p, func(x, y *Free) int { return x.Rank - y.Rank })
	}
	for i := range named {
		f := &named[i]
		at := Chosen{f.CampaignID, f.Position}
		s.named[at] = f
		if f.State == Available && s.free[at] == nil {
			s.free[at] = &f.Free
		}
	}
	return s
}

// At returns a position that was found or named, if it is free and not taken;
// otherwise nil.
func (s *Shelf) At(at Chosen) *Free {
	if f := s.free[at]; f != nil && !s.taken[f] {
		return f
	}
	return nil
}

// Named returns a position that was named, as it was found, or nil.
func (s *Shelf) Named(at Chosen) *Found { return s.named[at] }

// First returns the first n positions of a layer, or with layer 0 of all, by
// rank, that are not taken and that skip, if it is not nil, does not pass over.
// Fewer are none.
func (s *Shelf) First(campaignID uuid.UUID, layer, n int, skip func(*Free) bool) []*Free {
	at := pool{campaignID, layer}
	left := s.pools[at]
	for len(left) > 0 && s.taken[left[0]] {
		left = left[1:] // taken ones at the front are never looked at again
	}
	s.pools[at] = left
	picked := make([]*Free, 0, n)
	for _, f := range left {
		if len(picked) == n {
			break
		}
		if !s.taken[f] && (skip == nil || !skip(f)) {
			picked = append(picked, f)
		}
	}
	if len(picked) < n {
		return nil
	}
	return picked
}

// Take takes positions off the shelf.
func (s *Shelf) Take(picked []*Free) {
	for _, f := range picked {
		s.taken[f] = true
	}
}

// Short returns those of the needs that are for a layer and found fewer than they
// asked for: the layer may be sold out.
func (s *Shelf) Short(needs []Need) []Need {
	return slices.DeleteFunc(slices.Clone(needs), func(n Need) bool {
		return n.Layer == 0 || len(s.pools[pool{n.CampaignID, n.Layer}]) >= n.Count
	})
}

// InOrder sorts positions by layer and column.
func InOrder(picked []*Free) {
	slices.SortFunc(picked, func(x, y *Free) int {
		if x.Before(y.Position) {
			return -1
		}
		return 1
	})
}
