// Package callerlimit bounds the streams and waits that clients keep open. Each needs
// a connection and a goroutine for as long as the client wants. There is a bound for a
// process in all, and one for each owner, which the caller knows ([Limit.Acquire]).
package callerlimit

import (
	"sync"

	"triprize/internal/domain/fault"
)

// Limit counts what is open.
type Limit struct {
	what string // in the plural, for answers
	most int

	mu     sync.Mutex
	open   int
	owners map[string]int // those with something open
}

// New returns a Limit of so many of something in this process.
func New(what string, most int) *Limit {
	return &Limit{what: what, most: most, owners: make(map[string]int)}
}

// Acquire counts one more of an owner, who may have most, until release is called; a
// second call of release does nothing. The Error is rate-limited when the owner has as
// many as it may: it can end one. It is overloaded when the process has as many as it
// may: another process may take it.
func (l *Limit) Acquire(owner string, most int) (release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owners[owner] >= most {
		return nil, fault.New(fault.RateLimited, "you have %d %s open, which is all that you may have here", most, l.what)
	}
	if l.open >= l.most {
		return nil, fault.New(fault.Overloaded, "%d %s are open here, which is all that this server carries", l.most, l.what)
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
