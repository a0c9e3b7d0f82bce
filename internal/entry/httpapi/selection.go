package httpapi

import (
	"context"
	"fmt"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/store/inventory"
)

// selection returns what a request wants of a campaign, in at most so many positions, or an
// invalid-request Error if the campaign can never give it: its key can then be used again, as no
// job is made of it. at is the JSON pointer of the selection. The sale checks what can change.
func (s *Server) selection(ctx context.Context, id uuid.UUID, w contract.Selection, at string, most int) (selection inventory.Selection, err error) {
	invalid := func(pointer, format string, args ...any) error {
		return fault.Invalid(fault.Field{Pointer: at + pointer, Detail: fmt.Sprintf(format, args...)})
	}
	selection = inventory.Selection{Layer: response.ValueOf(w.Layer), Quantity: w.Quantity, Adjacent: w.Adjacent, HoldID: response.ValueOf(w.HoldID)}
	switch {
	case w.Quantity > most:
		return selection, invalid("/quantity", "must be at most %d", most)
	case len(w.Positions) > most:
		return selection, invalid("/positions", "must have at most %d elements", most)
	case selection.Layer > 0 && w.Quantity == 0:
		return selection, invalid("/layer", "goes with quantity only")
	case w.Adjacent && w.Quantity == 0:
		return selection, invalid("/adjacent", "goes with quantity only")
	}
	known, err := s.facts.Of(ctx, s.db, id)
	if err != nil || len(w.Positions) == 0 && w.Quantity == 0 { // a hold has its positions already
		return selection, err
	}
	if selection.Positions, selection.Numbers, err = placesOf(w.Positions, at, known.Shape); err != nil {
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
		if len(w.Positions) > 0 {
			pointer = "/positions"
		}
		err = invalid(pointer, "the campaign allows %d positions per user", *known.PurchaseLimit)
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
