package devkit

import (
	"fmt"

	"triprize.example/client"
	"triprize/internal/domain/shape"
)

// offer is what a demo sells.
type offer struct {
	draft  client.CampaignDraft
	form   shape.Shape
	prizes int
	each   int // positions that a buyer wants; the shape has a multiple of it
}

// demoOffer returns the offer of a name; baseLength is that of the triangle.
func demoOffer(name string, baseLength int) (offer, error) {
	switch name {
	case "triangle":
		layers := make([]client.LayerDraft, baseLength)
		for i := range layers {
			layers[i] = client.LayerDraft{Layer: i + 1, Price: int64(100 * (baseLength - i)), Prizes: prizesOf(fmt.Sprintf("Prize of layer %d", i+1), 1)}
		}
		return offerOf(client.CampaignDraft{Name: "Demo", BaseLength: baseLength, Currency: "JPY", Layers: layers}, 1), nil
	case "hall":
		layers := make([]client.LayerDraft, 10)
		for i := range layers {
			layers[i] = client.LayerDraft{Layer: i + 1, Positions: 12, Label: "Row " + string(rune('A'+i)), Price: int64(100 * (20 - i))}
		}
		layers[0].Prizes, layers[9].Prizes = prizesOf("A visit backstage", 2), prizesOf("A better seat", 4)
		return offerOf(client.CampaignDraft{Name: "Demo hall", Currency: "JPY", Layers: layers}, 1), nil
	case "raffle":
		tickets := client.LayerDraft{Layer: 1, Positions: 10_000, Label: "Ticket", Price: 100,
			Prizes: append(append(prizesOf("A car", 1), prizesOf("A bicycle", 9)...), prizesOf("A mug", 90)...)}
		return offerOf(client.CampaignDraft{Name: "Demo raffle", Currency: "JPY", Layers: []client.LayerDraft{tickets}}, 20), nil
	}
	return offer{}, fmt.Errorf("--shape %s is not known; it is triangle, hall or raffle", name)
}

func prizesOf(name string, count int) []client.PrizeGroup {
	return []client.PrizeGroup{{Name: name, Count: count}}
}

// offerOf returns the offer of a draft, of which each buyer wants so many positions.
func offerOf(draft client.CampaignDraft, each int) offer {
	o, layers := offer{draft: draft, each: each}, make([]shape.Layer, len(draft.Layers))
	for i, l := range draft.Layers {
		layers[i] = shape.Layer{Positions: l.Positions, Label: l.Label}
		if draft.BaseLength != 0 {
			layers[i].Positions = l.Layer
		}
		for _, p := range l.Prizes {
			o.prizes += p.Count
		}
	}
	o.form = shape.New(layers)
	return o
}
