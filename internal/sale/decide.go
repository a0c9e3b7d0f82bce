package sale

import (
	"fmt"

	"triprize/internal/campaign"
	"triprize/internal/fault"
	"triprize/internal/job"
	"triprize/internal/triangle"
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
	case o.Selection.Layer < 0 || o.Selection.Layer > c.BaseLength:
		return fault.Invalid(fault.Field{Pointer: "/selection/layer", Detail: fmt.Sprintf("the campaign has layers 1 to %d", c.BaseLength)})
	case o.Selection.Quantity < 1:
		return fault.Invalid(fault.Field{Pointer: "/selection/quantity", Detail: "must be at least 1"})
	case o.Selection.Layer > 0 && o.Selection.Quantity > triangle.InLayer(o.Selection.Layer):
		return fault.Invalid(fault.Field{Pointer: "/selection/quantity",
			Detail: fmt.Sprintf("layer %d has no more than %d in all", o.Selection.Layer, triangle.InLayer(o.Selection.Layer))})
	case o.Selection.Quantity > triangle.Count(c.BaseLength):
		return fault.Invalid(fault.Field{Pointer: "/selection/quantity", Detail: fmt.Sprintf("the campaign has no more than %d in all", triangle.Count(c.BaseLength))})
	case c.State != campaign.Active && c.Counts.Sold == c.Counts.Total:
		return fault.New(fault.SoldOut, "all %d positions are sold", c.Counts.Total)
	case c.State != campaign.Active:
		return fault.New(fault.CampaignNotActive, "the campaign is %s", c.State)
	case c.Paused:
		return fault.New(fault.CampaignPaused, "the operator has paused the sale")
	case !c.Open:
		return fault.New(fault.SaleNotOpen, "the sale has not begun or is over")
	}
	return nil
}

// withinLimit checks the purchase limit on what the user has now.
func (b *batch) withinLimit(o *order) error {
	c := b.campaigns[o.campaignID]
	if c.PurchaseLimit == nil {
		return nil
	}
	if has := b.owned[owner{o.campaignID, o.UserID}]; has+o.Selection.Quantity > *c.PurchaseLimit {
		return fault.New(fault.PurchaseLimitExceeded, "the limit is %d positions per user; this user has %d and asks for %d more",
			*c.PurchaseLimit, has, o.Selection.Quantity)
	}
	return nil
}

func (b *batch) refuse(o *order, err error) {
	problem := job.ProblemOf(err)
	b.outcomes = append(b.outcomes, job.Outcome{ID: o.jobID, Problem: &problem})
}
