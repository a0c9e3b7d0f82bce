package httpapi

import (
	"context"
	"encoding/hex"

	"github.com/google/uuid"
	"github.com/oapi-codegen/nullable"

	"triprize/internal/domain/money"
	"triprize/internal/domain/triangle"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/board"
	"triprize/internal/store/campaign"
)

var defaultPolicies = campaign.Policies{LatePayment: campaign.LatePaymentRefund, Unsold: campaign.UnsoldStay}

// draftOf is a campaign as it was asked for.
func draftOf(body contract.CampaignDraft) campaign.Draft {
	return campaign.Draft{Name: body.Name, BaseLength: body.BaseLength, Currency: money.Currency(body.Currency), PurchaseLimit: body.PurchaseLimit,
		SaleStartsAt: body.SaleStartsAt, SaleEndsAt: body.SaleEndsAt, Policies: policiesOf(body.Policies), Layers: layersOf(body.Layers)}
}

// patched lays a change over a draft: what is left out stays, null empties.
func patched(d campaign.Draft, change contract.CampaignPatch) campaign.Draft {
	if change.Name != nil {
		d.Name = *change.Name
	}
	if change.BaseLength != nil {
		d.BaseLength = *change.BaseLength
	}
	if change.Currency != nil {
		d.Currency = money.Currency(*change.Currency)
	}
	if change.Layers != nil {
		d.Layers = layersOf(*change.Layers)
	}
	if change.Policies != nil {
		d.Policies = policiesOf(change.Policies)
	}
	if change.PurchaseLimit.IsSpecified() {
		d.PurchaseLimit = valueOf(change.PurchaseLimit)
	}
	if change.SaleStartsAt.IsSpecified() {
		d.SaleStartsAt = valueOf(change.SaleStartsAt)
	}
	if change.SaleEndsAt.IsSpecified() {
		d.SaleEndsAt = valueOf(change.SaleEndsAt)
	}
	return d
}

// fixedFields lists the fields of a change that a campaign in this state keeps.
func fixedFields(change contract.CampaignPatch, state campaign.State) []string {
	active := state == campaign.Active
	var fixed []string
	for _, f := range []struct {
		name string
		set  bool
		free bool
	}{
		{"base_length", change.BaseLength != nil, false}, {"currency", change.Currency != nil, false}, {"layers", change.Layers != nil, false},
		{"sale_starts_at", change.SaleStartsAt.IsSpecified(), false}, {"policies", change.Policies != nil, false},
		{"purchase_limit", change.PurchaseLimit.IsSpecified(), active}, {"sale_ends_at", change.SaleEndsAt.IsSpecified(), active},
	} {
		if f.set && !f.free {
			fixed = append(fixed, f.name)
		}
	}
	return fixed
}

// valueOf returns what was sent, or nil for null and for nothing.
func valueOf[T any](n nullable.Nullable[T]) *T {
	if value, err := n.Get(); err == nil {
		return &value
	}
	return nil
}

func policiesOf(draft *contract.PoliciesDraft) campaign.Policies {
	policies := defaultPolicies
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
		layers[i] = campaign.Layer{Layer: d.Layer, Price: d.Price}
		for _, p := range d.Prizes {
			layers[i].Prizes = append(layers[i].Prizes, campaign.PrizeGroup{Name: p.Name, Count: p.Count})
		}
	}
	return layers
}

func summaryJSON(c campaign.Campaign) contract.CampaignSummary {
	return contract.CampaignSummary{ID: c.ID, Name: c.Name, BaseLength: c.BaseLength, Currency: string(c.Currency), PurchaseLimit: c.PurchaseLimit,
		State: contract.CampaignState(c.State), Paused: c.PausedAt != nil, SaleStartsAt: c.SaleStartsAt, SaleEndsAt: c.SaleEndsAt,
		Policies: contract.Policies{LatePayment: c.Policies.LatePayment, Unsold: c.Policies.Unsold,
			CancellationUntil: c.Policies.CancellationUntil, Beacon: c.Policies.Beacon},
		Positions: contract.Counts{Total: c.Counts.Total, Available: c.Counts.Available(), Reserved: c.Counts.Reserved, Sold: c.Counts.Sold},
		CreatedAt: c.CreatedAt, PublishedAt: c.PublishedAt, DrawStartedAt: c.DrawStartedAt, DrawCompletedAt: c.DrawCompletedAt}
}

// loadCampaign reads a campaign with its layers, counts and commitment.
func loadCampaign(ctx context.Context, db postgres.DB, id uuid.UUID) (contract.Campaign, error) {
	c, err := campaign.Get(ctx, db, id)
	if err != nil {
		return contract.Campaign{}, err
	}
	layers, err := campaign.Layers(ctx, db, id)
	if err != nil {
		return contract.Campaign{}, err
	}
	counts, err := board.CountByLayer(ctx, db, id)
	if err != nil {
		return contract.Campaign{}, err
	}
	bound, published, err := campaign.CommitmentOf(ctx, db, id)
	if err != nil {
		return contract.Campaign{}, err
	}
	summary := summaryJSON(c)
	document := contract.Campaign{ID: summary.ID, Name: summary.Name, BaseLength: summary.BaseLength, Currency: summary.Currency,
		PurchaseLimit: summary.PurchaseLimit, State: summary.State, Paused: summary.Paused, SaleStartsAt: summary.SaleStartsAt,
		SaleEndsAt: summary.SaleEndsAt, Policies: summary.Policies, Positions: summary.Positions, CreatedAt: summary.CreatedAt,
		PublishedAt: summary.PublishedAt, DrawStartedAt: summary.DrawStartedAt, DrawCompletedAt: summary.DrawCompletedAt}
	for i, l := range layers {
		d := contract.Layer{Layer: l.Layer, Price: l.Price, Prizes: make([]contract.PrizeGroup, 0, len(l.Prizes)),
			Positions: contract.Counts{Total: triangle.InLayer(l.Layer), Available: triangle.InLayer(l.Layer)}}
		for _, p := range l.Prizes {
			d.Prizes = append(d.Prizes, contract.PrizeGroup{Name: p.Name, Count: p.Count})
		}
		if i < len(counts) { // none before publication
			d.Positions.Available, d.Positions.Reserved, d.Positions.Sold = counts[i].Available, counts[i].Reserved, counts[i].Sold
		}
		document.Layers = append(document.Layers, d)
	}
	if published {
		commitment := hex.EncodeToString(bound.Commitment)
		document.Rules, document.Commitment = bound.Rules, &commitment
	}
	return document, nil
}
