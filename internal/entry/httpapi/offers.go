package httpapi

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/singleflight"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/campaign"
	"triprize/internal/store/inventory"
)

// offers knows what campaigns can give at most, so that a request for what can never be is
// refused before a job is made of it, and its key can be used again.
type offers struct {
	db      postgres.DB
	known   *lru.Cache[uuid.UUID, offer] // of campaigns that are no drafts
	loading singleflight.Group
}

// offer is what a campaign can give. The shape of a published campaign never changes. Its
// limit does: it is only raised, so what is within it stays allowed.
type offer struct {
	form  shape.Shape
	limit *int // positions per user; nil: no limit
}

// offersKnown bounds them: a shape has shape.MaxLayers layers at most.
const offersKnown = 1000

func newOffers(db postgres.DB) *offers {
	known, _ := lru.New[uuid.UUID, offer](offersKnown) // fails only for a size of 0
	return &offers{db: db, known: known}
}

// get returns what a campaign can give, or a not-found Error.
func (o *offers) get(ctx context.Context, id uuid.UUID) (offer, error) {
	if found, ok := o.known.Get(id); ok {
		return found, nil
	}
	return o.read(ctx, id)
}

// read returns what a campaign can give now. A draft is not remembered.
func (o *offers) read(ctx context.Context, id uuid.UUID) (offer, error) {
	found, err, _ := o.loading.Do(id.String(), func() (any, error) {
		c, err := campaign.Get(ctx, o.db, id)
		if err != nil {
			return offer{}, err
		}
		form, err := campaign.ShapeOf(ctx, o.db, id)
		if err != nil {
			return offer{}, err
		}
		if c.State != campaign.Pending {
			o.known.Add(id, offer{form, c.PurchaseLimit})
		}
		return offer{form, c.PurchaseLimit}, nil
	})
	if err != nil {
		return offer{}, err
	}
	return found.(offer), nil //nolint:forcetypeassert // the function above returns no other
}

// wanted is the selection in a request.
type wanted struct {
	positions       []contract.PlaceDraft
	quantity, layer int    // 0: not said
	at              string // the JSON pointer of the selection
	most            int    // positions in a request, by the settings
}

// pointer returns where the number of positions is said.
func (w wanted) pointer() string {
	if len(w.positions) > 0 {
		return w.at + "/positions"
	}
	return w.at + "/quantity"
}

// selection returns what a request wants of a campaign, or an invalid-request Error if the
// campaign can never give it.
func (o *offers) selection(ctx context.Context, id uuid.UUID, w wanted) (selection inventory.Selection, err error) {
	if err := w.check(); err != nil {
		return selection, err
	}
	offered, err := o.get(ctx, id)
	if err != nil || len(w.positions) == 0 && w.quantity == 0 { // a hold has its positions already
		return selection, err
	}
	selection = inventory.Selection{Layer: w.layer, Quantity: w.quantity}
	if selection.Positions, err = w.places(offered.form); err != nil {
		return selection, err
	}
	if err := selection.Check(offered.form, w.at); err != nil {
		return selection, err
	}
	if offered.limit != nil && selection.Size() > *offered.limit { // it may have been raised
		if offered, err = o.read(ctx, id); err != nil {
			return selection, err
		}
	}
	if offered.limit != nil && selection.Size() > *offered.limit {
		return selection, fault.Invalid(fault.Field{Pointer: w.pointer(), Detail: fmt.Sprintf("the campaign allows %d positions per user", *offered.limit)})
	}
	return selection, nil
}

// check makes the checks that need no campaign, and that the contract cannot express.
func (w wanted) check() error {
	switch {
	case w.quantity > w.most:
		return fault.Invalid(fault.Field{Pointer: w.at + "/quantity", Detail: fmt.Sprintf("must be at most %d", w.most)})
	case len(w.positions) > w.most:
		return fault.Invalid(fault.Field{Pointer: w.at + "/positions", Detail: fmt.Sprintf("must have at most %d elements", w.most)})
	case w.layer > 0 && w.quantity == 0:
		return fault.Invalid(fault.Field{Pointer: w.at + "/layer", Detail: "goes with quantity only"})
	}
	for i, p := range w.positions {
		if (p.Number > 0) == (p.Layer > 0) || (p.Layer > 0) != (p.Column > 0) {
			return fault.Invalid(fault.Field{Pointer: fmt.Sprintf("%s/positions/%d", w.at, i), Detail: "must have layer and column, or number alone"})
		}
	}
	return nil
}

// places returns the chosen positions, each once.
func (w wanted) places(form shape.Shape) ([]shape.Position, error) {
	if len(w.positions) == 0 {
		return nil, nil
	}
	places, seen := make([]shape.Position, len(w.positions)), make(map[shape.Position]bool, len(w.positions))
	for i, p := range w.positions {
		pointer := fmt.Sprintf("%s/positions/%d", w.at, i)
		places[i] = shape.Position{Layer: p.Layer, Column: p.Column}
		if p.Number > 0 {
			at, ok := form.At(p.Number)
			if !ok {
				return nil, fault.Invalid(fault.Field{Pointer: pointer + "/number", Detail: fmt.Sprintf("the campaign has positions 1 to %d", form.Count())})
			}
			places[i] = at
		}
		if seen[places[i]] {
			return nil, fault.Invalid(fault.Field{Pointer: pointer, Detail: "is there twice"})
		}
		seen[places[i]] = true
	}
	return places, nil
}
