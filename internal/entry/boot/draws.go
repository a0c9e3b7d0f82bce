package boot

import (
	"triprize/internal/platform/drand"
	"triprize/internal/platform/timestamp"
	"triprize/internal/service/draw"
)

// draws returns the relays and authorities that draws may ask. Without relays, draws of
// campaigns with a beacon wait for a worker that has them. Without authorities a draw goes
// on without timestamps when its round is due.
func (p *Process) draws() (asked draw.Options, closeAll func(), err error) {
	closeAll = func() {}
	if p.Settings.Timestamps.Enabled() {
		client, err := timestamp.New(p.Settings.Timestamps, p.Registry, p.Logger)
		if err != nil {
			return asked, nil, err
		}
		asked.Stamper, asked.Margin = client, p.Settings.Timestamps.Margin
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
