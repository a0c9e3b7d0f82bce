// Package callerlimit bounds open streams and waits, for the process and for each owner. Each occupies a
// connection and a goroutine for as long as the client wants. See [Limit.Acquire].
package callerlimit

import (
	"sync"

	"triprize/internal/domain/fault"
)

// Limit counts open streams or waits.
type Limit struct {
	what string // plural, for errors
	max  int

	mu     sync.Mutex
	open   int
	owners map[string]int // open ones by owner
}

// New returns a Limit of limit in this process; what names them.
func New(what string, limit int) *Limit {
	return &Limit{what: what, max: limit, owners: make(map[string]int)}
}

// Acquire counts one more of an owner, who may have limit of them, until release is called. release is idempotent. The Error is
// rate-limited if the owner has reached limit: it can close one. It is overloaded if the process has reached its
// limit: another process may accept it.
func (l *Limit) Acquire(owner string, limit int) (release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owners[owner] >= limit {
		return nil, fault.New(fault.RateLimited, "you have %d %s open, which is the maximum per caller", limit, l.what)
	}
	if l.open >= l.max {
		return nil, fault.New(fault.Overloaded, "%d %s are open, which is the maximum of this server", l.max, l.what)
	}
	l.open++
	l.owners[owner]++
	return sync.OnceFunc(func() { l.release(owner) }), nil
}

func (l *Limit) release(owner string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if l.owners[owner]--; l.owners[owner] == 0 {
		delete(l.owners, owner)
	}
}

// Open returns how many are open.
func (l *Limit) Open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}
