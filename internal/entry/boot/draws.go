package boot

import (
	"triprize/internal/platform/drand"
	"triprize/internal/service/draw"
)

// draws returns who the draws of a worker may ask. Without relays it is nobody: draws of
// campaigns with a beacon wait for a worker that has them.
func (p *Process) draws() (asked draw.Options, closeAll func(), err error) {
	if !p.Settings.Beacon.Enabled() {
		return asked, func() {}, nil
	}
	client, err := drand.New(p.Settings.Beacon, p.Registry, p.Logger)
	if err != nil {
		return asked, nil, err
	}
	asked.Beacon = client
	return asked, client.Close, nil
}
