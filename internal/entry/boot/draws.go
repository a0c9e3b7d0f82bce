package boot

import (
	"context"

	"triprize/internal/domain/fairdraw"
	"triprize/internal/platform/drand"
	"triprize/internal/platform/timestamp"
	"triprize/internal/service/draw"
)

// draws returns who the draws of a worker may ask. Without relays it is nobody: draws of
// campaigns with a beacon wait for a worker that has them. Without authorities a draw goes
// on without timestamps when its round is due.
func (p *Process) draws() (asked draw.Options, closeAll func(), err error) {
	closeAll = func() {}
	if p.Settings.Timestamps.Enabled() {
		client, err := timestamp.New(p.Settings.Timestamps, p.Registry, p.Logger)
		if err != nil {
			return asked, nil, err
		}
		asked.Stamper, asked.Margin = stamper{client}, p.Settings.Timestamps.Margin
	}
	if p.Settings.Beacon.Enabled() {
		client, err := drand.New(p.Settings.Beacon, p.Registry, p.Logger)
		if err != nil {
			return asked, nil, err
		}
		asked.Beacon, closeAll = client, client.Close
	}
	return asked, closeAll, nil
}

// stamper lets draws ask timestamp authorities.
type stamper struct{ client *timestamp.Client }

// Stamp returns the tokens of those that answered, and why the others did not.
func (s stamper) Stamp(ctx context.Context, digest fairdraw.Hash, authorities []fairdraw.Hash) ([]draw.Token, error) {
	stamped, err := s.client.Stamp(ctx, digest, authorities)
	tokens := make([]draw.Token, len(stamped))
	for i, t := range stamped {
		tokens[i] = draw.Token{Authority: t.Authority, DER: t.DER, GenTime: t.GenTime, Accuracy: t.Accuracy}
	}
	return tokens, err
}
