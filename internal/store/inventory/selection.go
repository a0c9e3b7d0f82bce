package inventory

import (
	"fmt"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
)

// Selection is the positions that a request wants, all or nothing: chosen positions, a number of
// free ones, random or side by side, or those of a hold.
type Selection struct {
	Layer     int              `json:"layer,omitempty"` // 0: anywhere in the campaign
	Quantity  int              `json:"quantity,omitempty"`
	Adjacent  bool             `json:"adjacent,omitempty"`
	Positions []shape.Position `json:"positions,omitempty"`
	Numbers   []int            `json:"numbers,omitempty"` // by which positions were chosen, if any was; 0: by layer and column
	HoldID    uuid.UUID        `json:"hold_id,omitzero"`
}

// MaxAdjacentLayer bounds the layers in which positions are found side by side: a layer is
// read as a whole, under the lock of its campaign.
const MaxAdjacentLayer = 10_000

// Size is the number of positions that the selection wants.
func (s Selection) Size() int { return max(s.Quantity, len(s.Positions)) }

// Check returns an invalid-request Error when a campaign of this shape can never give the
// selection. at is the JSON pointer of the selection in the request.
func (s Selection) Check(form shape.Shape, at string) error {
	invalid := func(pointer, format string, args ...any) error {
		return fault.Invalid(fault.Field{Pointer: at + pointer, Detail: fmt.Sprintf(format, args...)})
	}
	var missing []fault.Field
	for i, p := range s.Positions {
		if why := Missing(form, p); why != "" {
			missing = append(missing, fault.Field{Pointer: fmt.Sprintf("%s/positions/%d", at, i), Detail: why})
		} else if i < len(s.Numbers) && s.Numbers[i] != 0 && s.Numbers[i] != form.Number(p) { // the draft was reshaped since
			missing = append(missing, fault.Field{Pointer: fmt.Sprintf("%s/positions/%d/number", at, i),
				Detail: fmt.Sprintf("%d was another position when it was chosen: the layers of the campaign have changed since", s.Numbers[i])})
		}
	}
	switch {
	case len(missing) > 0:
		return fault.Invalid(missing...)
	case len(s.Positions) > 0:
		return nil
	case s.Layer < 0 || s.Layer > form.Layers():
		return invalid("/layer", "the campaign has layers 1 to %d", form.Layers())
	case s.Quantity < 1:
		return invalid("/quantity", "must be at least 1")
	case s.Layer > 0 && s.Quantity > form.InLayer(s.Layer):
		return invalid("/quantity", "%s has no more than %d in all", form.LayerName(s.Layer), form.InLayer(s.Layer))
	case s.Quantity > form.Count():
		return invalid("/quantity", "the campaign has no more than %d in all", form.Count())
	case s.Adjacent && form.LargestLayer(s.Layer) > MaxAdjacentLayer:
		return invalid("/adjacent", "goes with layers of %d positions at most; one of %s has %d", MaxAdjacentLayer, s.where(), form.LargestLayer(s.Layer))
	case s.Adjacent && s.Quantity > form.LongestRun(s.Layer):
		return invalid("/quantity", "no more than %d positions of %s are side by side", form.LongestRun(s.Layer), s.where())
	}
	return nil
}

// where names the part of the campaign that the positions come from.
func (s Selection) where() string {
	if s.Layer == 0 {
		return "the campaign"
	}
	return fmt.Sprintf("layer %d", s.Layer)
}

// CheckLimit returns a purchase-limit-exceeded Error when a user would have more
// positions in a campaign than the limit: bought and held ones together. A nil
// limit is no limit.
func CheckLimit(limit *int, has, more int) error {
	if limit == nil || has+more <= *limit {
		return nil
	}
	return fault.New(fault.PurchaseLimitExceeded, "the limit is %d positions per user; this user has %d and asks for %d more", *limit, has, more)
}

// TakenField says that a chosen position is taken: the i-th of the selection at a
// JSON pointer.
func TakenField(at string, i int, p shape.Position, form shape.Shape) fault.Field {
	return fault.Field{Pointer: fmt.Sprintf("%s/positions/%d", at, i), Detail: fmt.Sprintf("position %s is taken", form.Name(p))}
}

// Missing says that a campaign of this shape has no such position; empty: it has.
func Missing(form shape.Shape, p shape.Position) string {
	switch n := form.InLayer(p.Layer); {
	case n == 0:
		return fmt.Sprintf("there is no position %d/%d; the campaign has layers 1 to %d", p.Layer, p.Column, form.Layers())
	case !form.Has(p):
		return fmt.Sprintf("there is no position %d/%d; %s has columns 1 to %d", p.Layer, p.Column, form.LayerName(p.Layer), n)
	}
	return ""
}
