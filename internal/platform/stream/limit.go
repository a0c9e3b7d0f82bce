package stream

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/config"
)

// Limit bounds how many streams are open, in all and per client. Each costs a
// connection and a goroutine for as long as its client likes.
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

// Acquire counts one more stream of a client until release is called; calling
// it again does nothing. A client that has all it may have gets a rate-limited
// Error: it can close one. When the process has all it can carry, the Error is
// overloaded: another process may have room.
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
