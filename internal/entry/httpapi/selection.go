package httpapi

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/store/inventory"
)

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
// campaign can never give it. Its key can then be used again, as no job is made of it.
func (s *intake) selection(ctx context.Context, id uuid.UUID, w wanted) (selection inventory.Selection, err error) {
	if err := w.check(); err != nil {
		return selection, err
	}
	known, err := s.facts.Of(ctx, s.db, id)
	if err != nil || len(w.positions) == 0 && w.quantity == 0 { // a hold has its positions already
		return selection, err
	}
	selection = inventory.Selection{Layer: w.layer, Quantity: w.quantity}
	if selection.Positions, err = w.places(known.Shape); err != nil {
		return selection, err
	}
	if err := selection.Check(known.Shape, w.at); err != nil {
		return selection, err
	}
	if known.Allows(selection.Size()) {
		return selection, nil
	}
	if known, err = s.facts.Read(ctx, s.db, id); err == nil && !known.Allows(selection.Size()) { // the limit may have been raised
		err = fault.Invalid(fault.Field{Pointer: w.pointer(), Detail: fmt.Sprintf("the campaign allows %d positions per user", *known.PurchaseLimit)})
	}
	return selection, err
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
