// Package httpconn bounds client connections before authentication ([Listen]).
//
//   - Number: connections in total, and per address.
//   - Rate: a head must arrive in time; a body or an answer must move at least minRate bytes per second.
//     Only time spent waiting for the client counts, so an idle stream is not slow.
//     [Conn.SetBodyDeadline] bounds a whole body.
//   - Idle time.
//   - Grammar: strict RFC 9112, with the length only in Content-Length. So no proxy can see another end of
//     a request (request smuggling).
//
// A request that violates a rule is answered here, and its connection is closed. Bytes of the next request
// do not reach the server before it reads them. While a request waits, [Conn.Watch] detects that its client
// is gone.
package httpconn

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Options are the limits of a Listener.
type Options struct {
	MaxOpen       int           // concurrent connections
	MaxPerAddress int           // of these, from one address; 0: no limit
	MaxHead       int           // bytes of the head of a request
	ReadTimeout   time.Duration // for a head, and how long a body may arrive slower than minRate
	WriteTimeout  time.Duration // how long an answer may be read slower than minRate
	IdleTimeout   time.Duration // until the first byte of a further request
	// Refuse returns the complete response to a rejected client, with Connection: close.
	Refuse func(Reason) []byte
}

// Listener accepts connections within its limits.
type Listener struct {
	net.Listener
	options Options

	refused, cut *prometheus.CounterVec

	mu        sync.Mutex
	open      int
	addresses map[netip.Addr]int // addresses with a connection, if MaxPerAddress is set
}

// Listen listens on a TCP address and exports metrics of its connections.
func Listen(ctx context.Context, address string, options Options, registry prometheus.Registerer) (*Listener, error) {
	config := net.ListenConfig{Control: prepare, KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: peerTimeout / 2, Interval: peerTimeout / 6, Count: 3}}
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return newListener(listener, options, registry), nil
}

func newListener(listener net.Listener, options Options, registry prometheus.Registerer) *Listener {
	auto := promauto.With(registry)
	l := &Listener{Listener: listener, options: options, addresses: make(map[netip.Addr]int),
		refused: auto.NewCounterVec(prometheus.CounterOpts{Name: "triprize_http_connections_refused_total", Help: "Connections rejected, by the limit that they exceeded."}, []string{"bound"}),
		cut:     auto.NewCounterVec(prometheus.CounterOpts{Name: "triprize_http_connections_cut_total", Help: "Connections closed because of their client, by reason."}, []string{"reason"}),
	}
	for _, bound := range []string{"address", "all"} {
		l.refused.WithLabelValues(bound)
	}
	for _, why := range []string{"slow-sender", "slow-reader", "bad-request"} {
		l.cut.WithLabelValues(why)
	}
	auto.NewGaugeFunc(prometheus.GaugeOpts{Name: "triprize_http_connections", Help: "Open connections of clients."}, func() float64 { return float64(l.Open()) })
	return l
}

// Open returns how many connections are open.
func (l *Listener) Open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

// acceptPause is the pause after a failed accept, for example with too many open files.
const acceptPause = 50 * time.Millisecond

// Accept implements net.Listener. Its only error is that the listener is closed.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		socket, err := l.Listener.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return nil, err
		case err != nil:
			time.Sleep(acceptPause)
			continue
		}
		address := AddressOf(socket)
		if bound := l.admit(address); bound != "" {
			l.refused.WithLabelValues(bound).Inc()
			_ = socket.SetWriteDeadline(time.Now().Add(acceptPause)) // fits into the buffer of a new socket
			_, _ = socket.Write(l.options.Refuse(TooMany))
			_ = socket.Close()
			continue
		}
		return newConn(socket, l, address), nil
	}
}

// admit counts a connection, or returns the limit that it exceeds.
func (l *Listener) admit(address netip.Addr) (bound string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.options.MaxPerAddress > 0 && l.addresses[address] >= l.options.MaxPerAddress:
		return "address"
	case l.open >= l.options.MaxOpen:
		return "all"
	}
	l.open++
	if l.options.MaxPerAddress > 0 {
		l.addresses[address]++
	}
	return ""
}

func (l *Listener) release(address netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if l.addresses[address]--; l.addresses[address] <= 0 {
		delete(l.addresses, address)
	}
}

// AddressOf returns the address of the peer, for MaxPerAddress; for IPv6 the /64 network.
func AddressOf(socket net.Conn) netip.Addr {
	if known, ok := socket.(*Conn); ok {
		return known.address
	}
	remote, ok := socket.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return network(remote.AddrPort().Addr().Unmap())
}
