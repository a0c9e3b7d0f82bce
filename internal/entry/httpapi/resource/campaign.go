package resource

import (
	"cmp"
	"encoding/hex"
	"fmt"

	"github.com/google/uuid"

	"triprize.example/draw/fairdraw"
	"triprize/internal/campaign"
	"triprize/internal/domain/shape"
	"triprize/internal/drawing"
	"triprize/internal/drawing/progress"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/lifecycle"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/stripe"
)

// CampaignSummary is a campaign without its layers. Only operators see who cancelled it.
func CampaignSummary(c campaign.Campaign, who Role) contract.CampaignSummary {
	d := contract.CampaignSummary{ID: c.ID, Name: c.Name, BaseLength: postgres.Nullable(c.BaseLength), Currency: string(c.Currency), PurchaseLimit: c.PurchaseLimit,
		State: contract.CampaignState(c.State), Paused: c.PausedAt != nil, SaleStartsAt: c.SaleStartsAt, SaleEndsAt: c.SaleEndsAt,
		DrawsAt: c.DrawsAt, Policies: contract.Policies{Unsold: c.Policies.Unsold, CancellationUntil: c.Policies.CancellationUntil, Beacon: c.Policies.Beacon,
			Disputes: cmp.Or(c.Policies.Disputes, campaign.DisputesKeep)},
		Positions: counts(c.Counts),
		CreatedAt: c.CreatedAt, PublishedAt: c.PublishedAt, DrawStartedAt: c.DrawStartedAt, DrawCompletedAt: c.DrawCompletedAt,
		CancelledAt: c.CancelledAt, CancelReason: c.CancelReason, Metadata: metadataFor(c.Metadata, who), Waiting: waitOf(c.Waiting),
		PublicPage: contract.PublicPage(c.PublicPage), EmbedOrigins: append([]string{}, c.EmbedOrigins...)}
	if who.SeesAll() && c.CancelledBy != nil {
		d.CancelledBy = *c.CancelledBy
	}
	return d
}

func counts(c campaign.Counts) contract.Counts {
	return contract.Counts{Total: c.Total, Available: c.Available(), Reserved: c.Reserved, Sold: c.Sold, Blocked: c.Blocked}
}

// Campaign is a campaign with its layers, counts and commitment.
func Campaign(c lifecycle.Details, who Role) contract.Campaign {
	document := contract.Campaign{CampaignSummary: CampaignSummary(c.Campaign, who)}
	if minimum, ok := stripe.Takes(c.Currency); ok && minimum > 0 {
		document.CardMinimum = new(int64(minimum))
	}
	for i, l := range c.Layers {
		d := contract.Layer{Layer: l.Layer, Label: postgres.Nullable(l.Label), Price: int64(l.Price), Prizes: make([]contract.PrizeGroup, 0, len(l.Prizes)),
			Aisles: append([]int{}, l.Aisles...), Positions: contract.Counts{Total: l.Positions, Available: l.Positions}}
		for _, p := range l.Prizes {
			d.Prizes = append(d.Prizes, contract.PrizeGroup{Name: p.Name, Count: p.Count})
		}
		if i < len(c.Counts) { // none before publication
			n := c.Counts[i]
			d.Positions = contract.Counts{Total: l.Positions, Available: n.Available, Reserved: n.Reserved, Sold: n.Sold, Blocked: n.Blocked}
		}
		document.Layers = append(document.Layers, d)
	}
	if c.Commitment != nil {
		document.Rules, document.Commitment = c.Commitment.Rules, new(hex.EncodeToString(c.Commitment.Commitment))
	}
	return document
}

func waitOf(w *campaign.Blocker) *contract.CampaignWait {
	if w == nil {
		return nil
	}
	d := &contract.CampaignWait{Kind: contract.CampaignWaitKind(w.Kind), Reason: w.Reason, Until: w.Until}
	if w.Kind == campaign.BlockedByPayments {
		d.Count, d.Reason = &w.Count, fmt.Sprintf("the sale is over, and %d of its purchases are not paid yet", w.Count)
	}
	return d
}

// CampaignEvent is how far a campaign is, for its stream.
func CampaignEvent(now progress.Progress) contract.CampaignEvent {
	e := contract.CampaignEvent{State: contract.CampaignState(now.State), Paused: now.Paused, BoardVersion: now.Board, Waiting: waitOf(now.Waiting),
		Positions: counts(now.Counts)}
	if r := now.Refunds; r != nil {
		e.Refunds = &contract.RefundProgress{Total: r.Total, Done: r.Done, Waiting: r.Waiting}
	}
	if d := now.Draw; d != nil {
		e.Draw = &contract.DrawProgress{FreezeHash: d.FreezeHash.String(), Round: roundJSON(d.Round), RoundDueAt: d.RoundDueAt, VoidsAt: d.VoidsAt}
	}
	return e
}

// Draw is what is public of a draw.
func Draw(now drawing.ProofState) contract.Draw {
	d := contract.Draw{State: contract.CampaignState(now.Campaign.State), Winners: []contract.Winner{},
		Round: roundJSON(now.Progress.Round), RoundDueAt: now.Progress.RoundDueAt, VoidsAt: now.Progress.VoidsAt}
	if now.Commitment != nil {
		d.Commitment, d.Trust, d.Rules = hexOf(now.Commitment), &now.Trust, now.Rules
	}
	if c := now.Chain; c != nil {
		hash := fairdraw.Hash(c.Hash())
		d.Chain = &contract.BeaconChain{ChainHash: hash.String(), PublicKey: hex.EncodeToString(c.PublicKey), GenesisTime: c.GenesisTime,
			GenesisSeed: hex.EncodeToString(c.GenesisSeed), BeaconID: c.ID, PeriodS: c.PeriodS}
	}
	if now.Freeze != nil {
		d.Root, d.Secret = hexOf(&now.Freeze.Root), hexOf(now.Freeze.Secret)
		d.Freeze = freeze(now.Progress)
	}
	if drawn := now.Draw; drawn != nil {
		d.Secret, d.Trust, d.ExecutedAt = hexOf(&drawn.Secret), &drawn.Trust, &drawn.ExecutedAt
		for _, w := range now.Winners {
			d.Winners = append(d.Winners, contract.Winner{Prize: w.Prize, Layer: w.Layer, Column: w.Column, Number: w.Number, Label: w.Label, PurchaseID: w.PurchaseID, Name: w.Name})
		}
	} else {
		d.Waiting = waitOf(now.Campaign.Waiting)
	}
	return d
}

func freeze(p drawing.Progress) *contract.Freeze {
	return &contract.Freeze{Hash: p.FreezeHash.String(), Record: p.Record}
}

func hexOf(h *fairdraw.Hash) *string {
	if h == nil {
		return nil
	}
	return new(h.String())
}

// roundJSON is the number of a round, which is far below 2^63.
func roundJSON(round *uint64) *int64 {
	if round == nil {
		return nil
	}
	return new(int64(*round)) //nolint:gosec // a round is at most 2^53
}

// DrawLabels is what people call the positions of a campaign.
func DrawLabels(id uuid.UUID, positions shape.Shape) contract.DrawLabels {
	labels := contract.DrawLabels{CampaignID: id, Layers: make([]contract.LayerLabel, positions.Layers())}
	for i := range labels.Layers {
		layer := i + 1
		l := contract.LayerLabel{Layer: layer, Positions: positions.InLayer(layer), FirstNumber: positions.First(layer)}
		if label := positions.LayerLabel(layer); label != "" {
			l.Label = &label
		}
		labels.Layers[i] = l
	}
	return labels
}
