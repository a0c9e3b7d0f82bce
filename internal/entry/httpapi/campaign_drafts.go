package httpapi

import (
	"github.com/oapi-codegen/nullable"

	"triprize/internal/domain/metadata"
	"triprize/internal/domain/money"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/platform/config"
	"triprize/internal/service/lifecycle"
	"triprize/internal/store/campaign"
)

// defaultPolicies are those of a request that does not say, in an installation with these
// settings.
func defaultPolicies(settings config.Settings) campaign.Policies {
	return campaign.Policies{LatePayment: campaign.LatePaymentRefund, Unsold: campaign.UnsoldStay, Beacon: settings.Beacon.Default}
}

// draftOf is a requested campaign. Policies that it does not name are as in defaults.
func draftOf(body contract.CampaignDraft, defaults campaign.Policies) campaign.Draft {
	return campaign.Draft{Name: body.Name, BaseLength: body.BaseLength, Currency: money.Currency(body.Currency), PurchaseLimit: body.PurchaseLimit,
		SaleStartsAt: body.SaleStartsAt, SaleEndsAt: body.SaleEndsAt, Policies: policiesOf(body.Policies, defaults), Layers: layersOf(body.Layers),
		Metadata: metadata.Map(body.Metadata)}
}

// patchOf is a requested change. A member that is left out stays as it is; null
// removes the value. Policies are changed as a whole.
func patchOf(change contract.CampaignPatch, defaults campaign.Policies) campaign.Patch {
	p := campaign.Patch{Name: change.Name, BaseLength: change.BaseLength, PurchaseLimit: optional(change.PurchaseLimit),
		SaleStartsAt: optional(change.SaleStartsAt), SaleEndsAt: optional(change.SaleEndsAt), Metadata: campaign.Optional[metadata.Map]{Set: change.Metadata.IsSpecified()}}
	if given, err := change.Metadata.Get(); err == nil {
		p.Metadata.Value = new(metadata.Map(given))
	}
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
	policies.CancellationUntil = draft.CancellationUntil
	return policies
}

func layersOf(drafts []contract.LayerDraft) []campaign.Layer {
	layers := make([]campaign.Layer, len(drafts))
	for i, d := range drafts {
		layers[i] = campaign.Layer{Layer: d.Layer, Positions: d.Positions, Label: d.Label, Aisles: d.Aisles, Price: money.Amount(d.Price)}
		for _, p := range d.Prizes {
			layers[i].Prizes = append(layers[i].Prizes, campaign.PrizeGroup{Name: p.Name, Count: p.Count})
		}
	}
	return layers
}

// campaignBounds are the limits of the settings on campaigns.
func campaignBounds(settings config.Settings) campaign.Bounds {
	return campaign.Bounds{MaxPositions: settings.Campaigns.MaxPositions, Beacon: settings.Beacon.Enabled()}
}

// bindingsOf are what campaigns can bind themselves to in an installation with these settings.
func bindingsOf(settings config.Settings) (bindings lifecycle.Bindings, err error) {
	if !settings.Beacon.Enabled() {
		return bindings, nil
	}
	chain, err := settings.Beacon.Chain()
	if err != nil {
		return bindings, err
	}
	bindings.Chain = &chain
	return bindings, nil
}
