package inventory

import (
	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
)

// layerRuns is what a stock has found of a layer for requests of adjacent positions.
type layerRuns struct {
	seats  []*Free // by column, of every run that is long enough for some request
	short  int     // the length of the longest other run
	looked bool    // then most is set, so that a request looks at a layer in vain once
	most   int     // no free run is longer: a stock gets nothing back
}

// addRuns adds the runs of a layer.
func (s *Stock) addRuns(l foundRuns) {
	r := &layerRuns{seats: make([]*Free, len(l.columns)), short: l.short}
	for i, column := range l.columns {
		at := PositionID{l.CampaignID, shape.Position{Layer: l.Layer, Column: column}}
		f := s.free[at]
		if f == nil {
			f = &Free{PositionID: at, Price: l.price, Version: l.versions[i]}
			s.free[at] = f
		}
		r.seats[i] = f
	}
	s.runs[l.Pool] = r
}

// adjacent returns positions side by side: the best of the front layer that has any.
func (s *Stock) adjacent(campaignID uuid.UUID, sel Selection, avoid func(shape.Position) bool) ([]*Free, error) {
	form, longest, free := s.forms[campaignID], 0, 0 // free: also what this user must avoid
	first, last := 1, form.Layers()
	if sel.Layer > 0 {
		first, last = sel.Layer, sel.Layer
	}
	for layer := first; layer <= last; layer++ {
		r := s.runs[Pool{campaignID, layer}]
		if r == nil {
			continue
		}
		if r.looked && sel.Quantity > r.most {
			longest, free = max(longest, r.most), max(free, r.most)
			continue
		}
		best, most := r.best(form, sel.Quantity, avoid)
		if best != nil {
			return best, nil
		}
		longest, free = max(longest, most), max(free, r.most)
	}
	refusal := fault.New(fault.NoneAvailable,
		"asked for %d side by side, and the longest free run of %s has %d at the moment; held and reserved positions may become free again", sel.Quantity, sel.where(), longest)
	refusal.ForAll = sel.Quantity > free
	return nil, s.whyNone(campaignID, sel, refusal)
}

// best returns the best n positions side by side in a layer, or nil and the length of its
// longest run without positions to be avoided.
func (r *layerRuns) best(form shape.Shape, n int, avoid func(shape.Position) bool) (best []*Free, longest int) {
	longest, r.looked, r.most = r.short, true, r.short
	var least fit
	for run := range freeRuns(r.seats, form) {
		r.most = max(r.most, len(run))
		usable := 0 // positions up to here that need not be avoided
		for end := range run {
			if usable++; avoid != nil && avoid(run[end].Position) {
				usable = 0
			}
			longest = max(longest, usable)
			if usable < n {
				continue
			}
			begin := end + 1 - n
			if f := fitOf(run[begin].Column, n, begin, len(run)-end-1, form.InLayer(run[0].Layer)); best == nil || f.before(least) {
				best, least = run[begin:end+1:end+1], f
			}
		}
	}
	return best, longest
}

// freeRuns yields the runs of positions that are not taken: columns that follow each other,
// without an aisle.
func freeRuns(seats []*Free, form shape.Shape) func(yield func([]*Free) bool) {
	return func(yield func([]*Free) bool) {
		begin := 0
		for i, f := range seats {
			if f.taken {
				begin = i + 1
				continue
			}
			ends := i+1 == len(seats) || seats[i+1].taken || seats[i+1].Column != f.Column+1 || form.Aisle(f.Position)
			if ends {
				if !yield(seats[begin : i+1]) {
					return
				}
				begin = i + 1
			}
		}
	}
}

// fit is how well positions side by side suit, the less the better.
type fit struct {
	orphans  bool // they leave a single free position beside them
	distance int  // of their middle to that of the layer, in half columns
	column   int  // their first
}

// fitOf returns the fit of n positions from a column on, with so many free ones to the left
// and to the right in their run.
func fitOf(column, n, left, right, inLayer int) fit {
	distance := 2*column + n - 1 - (inLayer + 1)
	return fit{orphans: left == 1 || right == 1, distance: max(distance, -distance), column: column}
}

func (f fit) before(other fit) bool {
	switch {
	case f.orphans != other.orphans:
		return other.orphans
	case f.distance != other.distance:
		return f.distance < other.distance
	default:
		return f.column < other.column
	}
}
