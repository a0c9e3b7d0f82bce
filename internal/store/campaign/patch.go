package campaign

import (
	"time"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
)

// Patch is a change to a campaign. What is nil, or not Set, stays as it is.
type Patch struct {
	Name          *string
	BaseLength    *int
	Currency      *money.Currency
	Layers        []Layer
	Policies      *Policies
	PurchaseLimit Optional[int]
	SaleStartsAt  Optional[time.Time]
	SaleEndsAt    Optional[time.Time]
}

// Optional is a new value for a field that may have none: with Set and no Value
// the field is emptied.
type Optional[T any] struct {
	Set   bool
	Value *T
}

// Apply returns the draft with a patch laid over it.
func (d Draft) Apply(p Patch) Draft {
	if p.Name != nil {
		d.Name = *p.Name
	}
	if p.BaseLength != nil {
		d.BaseLength = *p.BaseLength
	}
	if p.Currency != nil {
		d.Currency = *p.Currency
	}
	if p.Layers != nil {
		d.Layers = p.Layers
	}
	if p.Policies != nil {
		d.Policies = *p.Policies
	}
	if p.PurchaseLimit.Set {
		d.PurchaseLimit = p.PurchaseLimit.Value
	}
	if p.SaleStartsAt.Set {
		d.SaleStartsAt = p.SaleStartsAt.Value
	}
	if p.SaleEndsAt.Set {
		d.SaleEndsAt = p.SaleEndsAt.Value
	}
	return d
}

// CheckFixed refuses, as a state-conflict, a patch of what a campaign that is not
// pending any more keeps: while it is active the name, a higher limit and a later
// end can be changed, afterwards the name.
func (p Patch) CheckFixed(state State) error {
	active := state == Active
	var fixed []string
	for _, f := range []struct {
		name string
		set  bool
		free bool
	}{
		{"base_length", p.BaseLength != nil, false}, {"currency", p.Currency != nil, false}, {"layers", p.Layers != nil, false},
		{"sale_starts_at", p.SaleStartsAt.Set, false}, {"policies", p.Policies != nil, false},
		{"purchase_limit", p.PurchaseLimit.Set, active}, {"sale_ends_at", p.SaleEndsAt.Set, active},
	} {
		if f.set && !f.free {
			fixed = append(fixed, f.name)
		}
	}
	if len(fixed) > 0 {
		return fault.New(fault.StateConflict, "the campaign is %s; these can no longer be changed: %v", state, fixed)
	}
	return nil
}
