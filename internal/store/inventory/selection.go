package inventory

import (
	"fmt"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/triangle"
)

// Selection asks for positions of a campaign, all or nothing, in one of two ways:
// chosen ones, or a number of free ones in an order that nobody can predict.
type Selection struct {
	Layer     int                 `json:"layer,omitempty"` // 0: anywhere in the campaign
	Quantity  int                 `json:"quantity,omitempty"`
	Positions []triangle.Position `json:"positions,omitempty"`
}

// Size is how many positions are asked for.
func (s Selection) Size() int { return max(s.Quantity, len(s.Positions)) }

// Check refuses, as invalid-request, what a triangle can never give, whoever asks
// and whenever. at is the JSON pointer of the selection in the request.
func (s Selection) Check(baseLength int, at string) error {
	invalid := func(pointer, format string, args ...any) error {
		return fault.Invalid(fault.Field{Pointer: at + pointer, Detail: fmt.Sprintf(format, args...)})
	}
	for i, p := range s.Positions {
		if !p.In(baseLength) {
			return invalid(fmt.Sprintf("/positions/%d", i), "there is no position %d/%d; the campaign has layers 1 to %d", p.Layer, p.Column, baseLength)
		}
	}
	switch {
	case len(s.Positions) > 0:
		return nil
	case s.Layer < 0 || s.Layer > baseLength:
		return invalid("/layer", "the campaign has layers 1 to %d", baseLength)
	case s.Quantity < 1:
		return invalid("/quantity", "must be at least 1")
	case s.Layer > 0 && s.Quantity > triangle.InLayer(s.Layer):
		return invalid("/quantity", "layer %d has no more than %d in all", s.Layer, triangle.InLayer(s.Layer))
	case s.Quantity > triangle.Count(baseLength):
		return invalid("/quantity", "the campaign has no more than %d in all", triangle.Count(baseLength))
	}
	return nil
}

// CheckLimit refuses, as purchase-limit-exceeded, more positions than a user may
// have in a campaign: bought and held ones together. No limit is nil.
func CheckLimit(limit *int, has, more int) error {
	if limit == nil || has+more <= *limit {
		return nil
	}
	return fault.New(fault.PurchaseLimitExceeded, "the limit is %d positions per user; this user has %d and asks for %d more", *limit, has, more)
}

// TakenField names a position of a request that is taken: the i-th of the
// positions at a JSON pointer.
func TakenField(at string, i int, p triangle.Position) fault.Field {
	return fault.Field{Pointer: fmt.Sprintf("%s/positions/%d", at, i), Detail: fmt.Sprintf("position %d/%d is taken", p.Layer, p.Column)}
}
