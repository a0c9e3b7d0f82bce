package resource

import (
	"encoding/hex"

	"github.com/google/uuid"

	"triprize.example/draw/fairdraw"
	"triprize/internal/domain/shape"
	"triprize/internal/entry/httpapi/contract"
	"triprize/internal/service/proof"
	"triprize/internal/store/drawrecord"
)

// Draw is what is public of a draw.
func Draw(now proof.State) contract.Draw {
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
		for _, w := range drawn.Winners {
			winner := contract.Winner{Prize: w.Prize, Layer: w.Layer, Column: w.Column, PurchaseID: w.PurchaseID, Name: w.Name}
			if w.Column != nil {
				place := now.Shape.Place(shape.Position{Layer: w.Layer, Column: *w.Column})
				winner.Number, winner.Label = &place.Number, &place.Label
			}
			d.Winners = append(d.Winners, winner)
		}
	} else {
		d.Waiting = waitOf(now.Campaign.Waiting)
	}
	return d
}

// freeze is the freeze record of a draw that has one.
func freeze(p drawrecord.Progress) *contract.Freeze {
	return &contract.Freeze{Hash: p.FreezeHash.String(), Record: p.Record}
}

func hexOf(h *fairdraw.Hash) *string {
	if h == nil {
		return nil
	}
	text := h.String()
	return &text
}

// roundJSON is the number of a round, which is far below 2^63.
func roundJSON(round *uint64) *int64 {
	if round == nil {
		return nil
	}
	number := int64(*round) //nolint:gosec // a round is at most 2^53
	return &number
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
