// Package drandsim is a simulator of drand, with its own chain and relays on loopback.
//
// It is for development and tests, never for production: its seed predicts every round.
//
//	GET /chains                        the hash of the chain
//	GET /info, /{hash}/info            what verifies it
//	GET /{hash}/public/{round|latest}  a round; without the hash, too; 425 before it is due
//
// A relay does what its [Faults] say: it is late, lies, or is away. They are set by
// [Relay.SetFaults], or over HTTP at the relay's own address, which answers with any faults:
//
//	GET    /control          its faults, and how many requests for rounds it had
//	PUT    /control/faults   {"late_s": 2, "wrong": "random"}: instead of those before
//	DELETE /control/faults   none from now on
//
// Anybody on this machine can set them: there is no key.
package drandsim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// Settings of a network.
type Settings struct {
	Chain *Chain           // required
	Clock func() time.Time // time.Now, if nil
}

// Network is some relays of one chain. Close it.
type Network struct {
	chain   *Chain
	relays  []*Relay
	servers []*http.Server
	release func()
	served  sync.WaitGroup
}

// Bounds of connections. An answer that hangs has no limit in time but the network's own.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	mostHeader    = 64 << 10
	endTimeout    = 10 * time.Second
)

// Start starts a relay at each address, host:port; port 0 is a free one. Others than
// those of this machine are refused.
func Start(ctx context.Context, settings Settings, addresses ...string) (*Network, error) {
	if settings.Chain == nil {
		return nil, errors.New("drandsim.Start: there is no chain")
	}
	if settings.Clock == nil {
		settings.Clock = time.Now
	}
	fork, err := settings.Chain.Fork()
	if err != nil {
		return nil, err
	}
	released := make(chan struct{})
	n := &Network{chain: settings.Chain, release: sync.OnceFunc(func() { close(released) })}
	for _, address := range addresses {
		listener, err := listen(ctx, address)
		if err != nil {
			return nil, errors.Join(err, n.Close()) //nolint:contextcheck // the end has a time of its own
		}
		relay := newRelay(settings.Chain, fork, settings.Clock, released)
		relay.url = "http://" + listener.Addr().String()
		server := &http.Server{Handler: relay, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: mostHeader}
		n.relays, n.servers = append(n.relays, relay), append(n.servers, server)
		n.served.Go(func() { _ = server.Serve(listener) }) // it ends with Close
	}
	return n, nil
}

func listen(ctx context.Context, address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("drandsim: %w", err)
	}
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, fmt.Errorf("drandsim: %s: a simulator listens on loopback only", address)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("drandsim: %w", err)
	}
	return listener, nil
}

// Chain is whose rounds are given out.
func (n *Network) Chain() *Chain { return n.chain }

// Relays returns the relays, in the order of their addresses.
func (n *Network) Relays() []*Relay { return n.relays }

// URLs returns where the relays are, in the same order.
func (n *Network) URLs() []string {
	urls := make([]string, len(n.relays))
	for i, r := range n.relays {
		urls[i] = r.url
	}
	return urls
}

// Close ends the relays, with the requests that hang, and waits for them.
func (n *Network) Close() error {
	n.release()
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	var failed []error
	for _, server := range n.servers {
		if err := server.Shutdown(ctx); err != nil {
			failed = append(failed, err, server.Close())
		}
	}
	n.served.Wait()
	return errors.Join(failed...)
}
