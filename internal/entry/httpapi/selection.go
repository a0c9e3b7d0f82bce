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

// selection adds the chosen positions to what a request wants of a campaign, in at most so many, or returns
// an invalid-request Error if the campaign can never give it: its key can then be used again, as no
// job is made of it. at is the JSON pointer of the selection. The contract has checked what goes
// with what; the sale checks what can change.
func (s *Server) selection(ctx context.Context, id uuid.UUID, selection inventory.Selection, chosen []contract.PlaceDraft, at string, most int) (inventory.Selection, error) {
	if selection.Quantity > most {
		return selection, fault.Invalid(fault.Field{Pointer: at + "/quantity", Detail: fmt.Sprintf("must be at most %d", most)})
	}
	known, err := s.facts.Of(ctx, s.db, id)
	if err != nil || len(chosen) == 0 && selection.Quantity == 0 { // a hold has its positions already
		return selection, err
	}
	if selection.Positions, selection.Numbers, err = placesOf(chosen, at, known.Shape); err != nil {
		return selection, err
	}
	if err := selection.Check(known.Shape, at); err != nil {
		return selection, err
	}
	if known.CheckLimit(0, selection.Size()) == nil {
		return selection, nil
	}
	if known, err = s.facts.Read(ctx, s.db, id); err == nil && known.CheckLimit(0, selection.Size()) != nil { // the limit may have been raised
		pointer := "/quantity"
		if len(chosen) > 0 {
			pointer = "/positions"
		}
		err = fault.Invalid(fault.Field{Pointer: at + pointer, Detail: fmt.Sprintf("the campaign allows %d positions per user", *known.PurchaseLimit)})
	}
	return selection, err
}

// placesOf returns the chosen positions, each once, and the numbers by which they were chosen, if
// any was; 0: by layer and column. An invalid-request Error names every one at fault.
func placesOf(chosen []contract.PlaceDraft, at string, form shape.Shape) (places []shape.Position, numbers []int, err error) {
	var wrong []fault.Field
	seen := make(map[shape.Position]bool, len(chosen))
	for i, p := range chosen {
		bad := func(pointer, detail string) {
			wrong = append(wrong, fault.Field{Pointer: fmt.Sprintf("%s/positions/%d%s", at, i, pointer), Detail: detail})
		}
		place, ok := shape.Position{Layer: p.Layer, Column: p.Column}, true
		if p.Number > 0 {
			if place, ok = form.At(p.Number); numbers == nil {
				numbers = make([]int, len(chosen))
			}
			numbers[i] = p.Number
		}
		switch missing := inventory.Missing(form, place); {
		case (p.Number > 0) == (p.Layer > 0) || (p.Layer > 0) != (p.Column > 0):
			bad("", "must have layer and column, or number alone")
		case !ok:
			bad("/number", fmt.Sprintf("the campaign has positions 1 to %d", form.Count()))
		case missing != "":
			bad("", missing)
		case seen[place]:
			bad("", "position "+form.Name(place)+" is there twice")
		default:
			seen[place] = true
			places = append(places, place)
		}
	}
	if len(wrong) > 0 {
		return nil, nil, fault.Invalid(wrong...)
	}
	return places, numbers, nil
}
