package httpapi

import (
	"encoding/hex"

	"github.com/oapi-codegen/nullable"

	"triprize/internal/domain/money"
	"triprize/internal/domain/triangle"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/platform/config"
	"triprize/internal/service/lifecycle"
	"triprize/internal/store/campaign"
)

// defaultPolicies are those of a request that does not say, in an installation with these
// settings.
func defaultPolicies(settings config.Settings) campaign.Policies {
	return campaign.Policies{LatePayment: campaign.LatePaymentRefund, Unsold: campaign.UnsoldStay, Beacon: settings.Beacon.Default, Witness: settings.Witness.Default}
}

// draftOf is a requested campaign. What it does not say of its policies is as in defaults.
func draftOf(body contract.CampaignDraft, defaults campaign.Policies) campaign.Draft {
	return campaign.Draft{Name: body.Name, BaseLength: body.BaseLength, Currency: money.Currency(body.Currency), PurchaseLimit: body.PurchaseLimit,
		SaleStartsAt: body.SaleStartsAt, SaleEndsAt: body.SaleEndsAt, Policies: policiesOf(body.Policies, defaults), Layers: layersOf(body.Layers)}
}

// patchOf is a requested change. A member that is left out stays as it is; null
// removes the value. Policies are changed as a whole.
func patchOf(change contract.CampaignPatch, defaults campaign.Policies) campaign.Patch {
	p := campaign.Patch{Name: change.Name, BaseLength: change.BaseLength, PurchaseLimit: optional(change.PurchaseLimit),
		SaleStartsAt: optional(change.SaleStartsAt), SaleEndsAt: optional(change.SaleEndsAt)}
	if change.Currency != nil {
		currency := money.Currency(*change.Currency)
		p.Currency = &currency
	}
	if change.Layers != nil {
		p.Layers = layersOf(*change.Layers)
	}
	if change.Policies != nil {
		policies := policiesOf(change.Policies, defaults)
		p.Policies = &policies
	}
	return p
}

func optional[T any](n nullable.Nullable[T]) campaign.Optional[T] {
	if value, err := n.Get(); err == nil {
		return campaign.Optional[T]{Set: true, Value: &value}
	}
	return campaign.Optional[T]{Set: n.IsSpecified()}
}

func policiesOf(draft *contract.PoliciesDraft, policies campaign.Policies) campaign.Policies {
	if draft == nil {
		policies.Witness = policies.Witness && policies.Beacon
		return policies
	}
	if draft.LatePayment != nil {
		policies.LatePayment = string(*draft.LatePayment)
	}
	if draft.Unsold != nil {
		policies.Unsold = string(*draft.Unsold)
	}
	if draft.Beacon != nil {
		policies.Beacon = *draft.Beacon
	}
	policies.Witness = policies.Witness && policies.Beacon // the default is for campaigns with a beacon
	if draft.Witness != nil {
		policies.Witness = *draft.Witness
	}
	policies.CancellationUntil = draft.CancellationUntil
	return policies
}

func layersOf(drafts []contract.LayerDraft) []campaign.Layer {
	layers := make([]campaign.Layer, len(drafts))
	for i, d := range drafts {
		layers[i] = campaign.Layer{Layer: d.Layer, Price: money.Amount(d.Price)}
		for _, p := range d.Prizes {
			layers[i].Prizes = append(layers[i].Prizes, campaign.PrizeGroup{Name: p.Name, Count: p.Count})
		}
	}
	return layers
}

// summaryJSON is a campaign without its layers. Only operators see who cancelled it.
func summaryJSON(c campaign.Campaign, forOperator bool) contract.CampaignSummary {
	d := contract.CampaignSummary{ID: c.ID, Name: c.Name, BaseLength: c.BaseLength, Currency: string(c.Currency), PurchaseLimit: c.PurchaseLimit,
		State: contract.CampaignState(c.State), Paused: c.PausedAt != nil, SaleStartsAt: c.SaleStartsAt, SaleEndsAt: c.SaleEndsAt,
		DrawsAt: c.DrawsAt, Policies: contract.Policies{LatePayment: c.Policies.LatePayment, Unsold: c.Policies.Unsold,
			CancellationUntil: c.Policies.CancellationUntil, Beacon: c.Policies.Beacon, Witness: c.Policies.Witness},
		Positions: contract.Counts{Total: c.Counts.Total, Available: c.Counts.Available(), Reserved: c.Counts.Reserved, Sold: c.Counts.Sold},
		CreatedAt: c.CreatedAt, PublishedAt: c.PublishedAt, DrawStartedAt: c.DrawStartedAt, DrawCompletedAt: c.DrawCompletedAt,
		CancelledAt: c.CancelledAt, CancelReason: c.CancelReason}
	if forOperator && c.CancelledBy != nil {
		d.CancelledBy = *c.CancelledBy
	}
	return d
}

// campaignJSON is a campaign with its layers, counts and commitment.
func campaignJSON(c lifecycle.Details, forOperator bool) contract.Campaign {
	summary := summaryJSON(c.Campaign, forOperator)
	document := contract.Campaign{ID: summary.ID, Name: summary.Name, BaseLength: summary.BaseLength, Currency: summary.Currency,
		PurchaseLimit: summary.PurchaseLimit, State: summary.State, Paused: summary.Paused, SaleStartsAt: summary.SaleStartsAt,
		SaleEndsAt: summary.SaleEndsAt, DrawsAt: summary.DrawsAt, Policies: summary.Policies, Positions: summary.Positions, CreatedAt: summary.CreatedAt,
		PublishedAt: summary.PublishedAt, DrawStartedAt: summary.DrawStartedAt, DrawCompletedAt: summary.DrawCompletedAt,
		CancelledAt: summary.CancelledAt, CancelledBy: summary.CancelledBy, CancelReason: summary.CancelReason}
	for i, l := range c.Layers {
		d := contract.Layer{Layer: l.Layer, Price: int64(l.Price), Prizes: make([]contract.PrizeGroup, 0, len(l.Prizes)),
			Positions: contract.Counts{Total: triangle.InLayer(l.Layer), Available: triangle.InLayer(l.Layer)}}
		for _, p := range l.Prizes {
			d.Prizes = append(d.Prizes, contract.PrizeGroup{Name: p.Name, Count: p.Count})
		}
		if i < len(c.Counts) { // none before publication
			counts := c.Counts[i]
			d.Positions.Available, d.Positions.Reserved, d.Positions.Sold = counts.Available, counts.Reserved, counts.Sold
		}
		document.Layers = append(document.Layers, d)
	}
	if c.Commitment != nil {
		commitment := hex.EncodeToString(c.Commitment.Commitment)
		document.Rules, document.Commitment = c.Commitment.Rules, &commitment
	}
	return document
}
