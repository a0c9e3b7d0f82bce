package boot

import (
	"triprize/internal/platform/drand"
	"triprize/internal/service/draw"
)

// draws returns the relays that draws may ask. Without relays, draws of campaigns with a
// beacon wait for a worker that has them.
func (p *Process) draws() (asked draw.Options, closeAll func(), err error) {
	closeAll = func() {}
	if p.Settings.Beacon.Enabled() {
		client, err := drand.New(p.Settings.Beacon, p.Registry, p.Logger)
		if err != nil {
			return asked, nil, err
		}
		asked.Beacon, closeAll = client, client.Close
	}
	return asked, closeAll, nil
}
