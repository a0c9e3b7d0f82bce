package stream

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/config"
)

// Limit bounds how many streams are open, in all and per client. Each needs a
// connection and a goroutine for as long as the client wants.
type Limit struct {
	maxOpen, maxPerClient int

	mu      sync.Mutex
	open    int
	clients map[string]int // those with a stream
}

// NewLimit returns a Limit and exports how many streams are open.
func NewLimit(settings config.Streams, registry prometheus.Registerer) *Limit {
	l := &Limit{maxOpen: settings.MaxOpen, maxPerClient: settings.MaxPerClient, clients: make(map[string]int)}
	registry.MustRegister(prometheus.NewGaugeFunc(
		prometheus.GaugeOpts{Name: "triprize_streams_open", Help: "Event streams that clients of this process have open."},
		func() float64 { return float64(l.Open()) }))
	return l
}

// Acquire counts one more stream of a client until release is called; a second
// call of release does nothing. The Error is rate-limited when the client has as
// many as it may: it can close one. It is overloaded when the process has as many
// as it may: another process may take it.
func (l *Limit) Acquire(client string) (release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.clients[client] >= l.maxPerClient {
		return nil, fault.New(fault.RateLimited, "this client has %d event streams open, which is all that it may have here", l.maxPerClient)
	}
	if l.open >= l.maxOpen {
		return nil, fault.New(fault.Overloaded, "%d event streams are open here, which is all that this server carries", l.maxOpen)
	}
	l.open++
	l.clients[client]++
	return sync.OnceFunc(func() { l.release(client) }), nil
}

func (l *Limit) release(client string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if l.clients[client]--; l.clients[client] == 0 {
		delete(l.clients, client)
	}
}

// Open returns how many streams are open.
func (l *Limit) Open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}
