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
	adjacent        bool   // side by side
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
	selection = inventory.Selection{Layer: w.layer, Quantity: w.quantity, Adjacent: w.adjacent}
	if selection.Positions, selection.Numbers, err = w.places(known.Shape); err != nil {
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
	case w.adjacent && w.quantity == 0:
		return fault.Invalid(fault.Field{Pointer: w.at + "/adjacent", Detail: "goes with quantity only"})
	}
	return nil
}

// places returns the chosen positions, each once, and the numbers by which they were chosen, if
// any was; 0: by layer and column. An invalid-request Error names every one at fault.
func (w wanted) places(form shape.Shape) (places []shape.Position, numbers []int, err error) {
	var wrong []fault.Field
	seen := make(map[shape.Position]bool, len(w.positions))
	for i, p := range w.positions {
		bad := func(pointer, detail string) {
			wrong = append(wrong, fault.Field{Pointer: fmt.Sprintf("%s/positions/%d%s", w.at, i, pointer), Detail: detail})
		}
		at, ok := shape.Position{Layer: p.Layer, Column: p.Column}, true
		if p.Number > 0 {
			if at, ok = form.At(p.Number); numbers == nil {
				numbers = make([]int, len(w.positions))
			}
			numbers[i] = p.Number
		}
		switch missing := inventory.Missing(form, at); {
		case (p.Number > 0) == (p.Layer > 0) || (p.Layer > 0) != (p.Column > 0):
			bad("", "must have layer and column, or number alone")
		case !ok:
			bad("/number", fmt.Sprintf("the campaign has positions 1 to %d", form.Count()))
		case missing != "":
			bad("", missing)
		case seen[at]:
			bad("", "position "+form.Name(at)+" is there twice")
		default:
			seen[at] = true
			places = append(places, at)
		}
	}
	if len(wrong) > 0 {
		return nil, nil, fault.Invalid(wrong...)
	}
	return places, numbers, nil
}
