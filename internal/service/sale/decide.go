package sale

import (
	"fmt"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/triangle"
	"triprize/internal/store/campaign"
	"triprize/internal/store/job"
)

// decide refuses the orders that no free position could help; the others are wanted.
func (b *batch) decide() {
	for i := range b.orders {
		o := &b.orders[i]
		if err := admit(b.campaigns[o.campaignID], o); err != nil {
			b.refuse(o, err)
			continue
		}
		b.wanted = append(b.wanted, o)
	}
}

// admit checks an order against its campaign: first what can never be, then the
// state it is in.
func admit(c *campaign.Sale, o *order) error {
	switch {
	case c == nil:
		return fault.New(fault.NotFound, "there is no campaign %s", o.campaignID)
	case impossible(c, o.Selection) != nil:
		return impossible(c, o.Selection)
	}
	return c.OnSale()
}

// impossible refuses a selection that the campaign's triangle can never give.
func impossible(c *campaign.Sale, s Selection) error {
	invalid := func(pointer, format string, args ...any) error {
		return fault.Invalid(fault.Field{Pointer: pointer, Detail: fmt.Sprintf(format, args...)})
	}
	if !s.random() {
		for i, p := range s.Positions {
			if !p.In(c.BaseLength) {
				return invalid(fmt.Sprintf("/selection/positions/%d", i), "there is no position %d/%d; the campaign has layers 1 to %d", p.Layer, p.Column, c.BaseLength)
			}
		}
		return nil
	}
	switch {
	case s.Layer < 0 || s.Layer > c.BaseLength:
		return invalid("/selection/layer", "the campaign has layers 1 to %d", c.BaseLength)
	case s.Quantity < 1:
		return invalid("/selection/quantity", "must be at least 1")
	case s.Layer > 0 && s.Quantity > triangle.InLayer(s.Layer):
		return invalid("/selection/quantity", "layer %d has no more than %d in all", s.Layer, triangle.InLayer(s.Layer))
	case s.Quantity > triangle.Count(c.BaseLength):
		return invalid("/selection/quantity", "the campaign has no more than %d in all", triangle.Count(c.BaseLength))
	}
	return nil
}

// withinLimit checks the purchase limit on what the user has now. What it holds
// is counted already.
func (b *batch) withinLimit(o *order) error {
	c := b.campaigns[o.campaignID]
	if c.PurchaseLimit == nil || o.Selection.HoldID != uuid.Nil {
		return nil
	}
	if has := b.owned[owner{o.campaignID, o.UserID}]; has+o.Selection.size() > *c.PurchaseLimit {
		return fault.New(fault.PurchaseLimitExceeded, "the limit is %d positions per user; this user has %d and asks for %d more",
			*c.PurchaseLimit, has, o.Selection.size())
	}
	return nil
}

func (b *batch) refuse(o *order, err error) {
	problem := job.ProblemOf(err)
	b.outcomes = append(b.outcomes, job.Outcome{ID: o.jobID, Problem: &problem})
}
