package campaign

import (
	"time"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/metadata"
	"triprize/internal/domain/money"
)

// Patch is a change to a campaign. Fields that are nil, or not Set, stay as they are.
type Patch struct {
	Name          *string
	BaseLength    *int
	Currency      *money.Currency
	Layers        []Layer
	Policies      *Policies
	PurchaseLimit Optional[int]
	SaleStartsAt  Optional[time.Time]
	SaleEndsAt    Optional[time.Time]
	Metadata      Optional[metadata.Map] // replaced as a whole, in every state
}

// Optional is a new value for a field that may be empty: Set with a nil Value
// empties the field.
type Optional[T any] struct {
	Set   bool
	Value *T
}

// Apply returns the draft with the changes of a patch.
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
	if p.Metadata.Set {
		d.Metadata = p.metadata()
	}
	return d
}

// metadata is the new metadata of a patch that has some.
func (p Patch) metadata() metadata.Map {
	if p.Metadata.Value == nil {
		return nil
	}
	return *p.Metadata.Value
}

// CheckFixed returns a state-conflict Error when a patch changes what can no
// longer change in a campaign that is not pending. While the campaign is active
// the name, a higher limit and a later end can change; afterwards only the name. The
// metadata can change at any time.
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

// CheckEnd returns a state-conflict Error when a patch moves the end of a sale to which
// the draw is bound. drawsAt is the campaign's; nil: its draw is bound to no end.
func (p Patch) CheckEnd(drawsAt *time.Time) error {
	if drawsAt == nil || !p.SaleEndsAt.Set || p.SaleEndsAt.Value != nil && p.SaleEndsAt.Value.Equal(*drawsAt) {
		return nil
	}
	return fault.New(fault.StateConflict, "what is sold by %s is drawn: the rules say so since publication, and sale_ends_at can no longer be changed or removed",
		drawsAt.UTC().Format(time.RFC3339Nano))
}
