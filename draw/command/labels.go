package command

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/google/uuid"

	"triprize.example/draw/fairdraw"
)

// labels are the labels of a campaign, as a server says them. No proof has them.
type labels struct {
	CampaignID uuid.UUID `json:"campaign_id"`
	Layers     []struct {
		Layer       int     `json:"layer"`
		Positions   int     `json:"positions"`
		FirstNumber int     `json:"first_number"`
		Label       *string `json:"label"`
	} `json:"layers"`
}

// readLabels reads the labels of a campaign from a file.
func readLabels(name string, campaign uuid.UUID) (*labels, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	const most = 8 << 20                // a thousand layers with long labels are 1 MB
	input, err := noProblem(io.LimitReader(file, most))
	if err != nil {
		return nil, err
	}
	l := &labels{}
	if err := json.NewDecoder(input).Decode(l); err != nil {
		return nil, fmt.Errorf("%s has no labels: %w", name, err)
	}
	if l.Layers == nil {
		return nil, fmt.Errorf("%s has no labels: fetch GET /v1/campaigns/{id}/draw/labels", name)
	}
	if l.CampaignID != campaign && campaign != uuid.Nil {
		return nil, fmt.Errorf("%s has the labels of campaign %s, and the proof is of %s", name, l.CampaignID, campaign)
	}
	return l, nil
}

// of returns what people call a position, or "" when the labels do not have it.
func (l *labels) of(w fairdraw.ProofWinner) string {
	if l == nil || w.Column == nil {
		return ""
	}
	for _, layer := range l.Layers {
		if layer.Layer != w.Layer || *w.Column > layer.Positions {
			continue
		}
		if layer.Label == nil || *layer.Label == "" {
			return fmt.Sprint(layer.FirstNumber + *w.Column - 1)
		}
		return fmt.Sprint(plain(*layer.Label), " ", *w.Column)
	}
	return ""
}

// place writes the position of a winner.
func (l *labels) place(w fairdraw.ProofWinner) string {
	if label := l.of(w); label != "" {
		return fmt.Sprintf("%d/%d (%s, as the server says, not proven)", w.Layer, *w.Column, label)
	}
	return fmt.Sprintf("%d/%d", w.Layer, *w.Column)
}
