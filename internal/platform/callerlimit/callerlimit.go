// Package callerlimit bounds the streams and waits that clients keep open. Each needs
// a connection and a goroutine for as long as the client wants. There is a bound for a
// process in all, and one for each owner, which the caller knows ([Slots.Acquire]).
package callerlimit

import (
	"sync"

	"triprize/internal/domain/fault"
)

// Slots counts what is open.
type Slots struct {
	what string // in the plural, for answers
	most int

	mu     sync.Mutex
	open   int
	owners map[string]int // those with something open
}

// New returns Slots for at most so many of something in this process.
func New(what string, most int) *Slots {
	return &Slots{what: what, most: most, owners: make(map[string]int)}
}

// Acquire counts one more of an owner, who may have most, until release is called; a
// second call of release does nothing. The Error is rate-limited when the owner has as
// many as it may: it can end one. It is overloaded when the process has as many as it
// may: another process may take it.
func (s *Slots) Acquire(owner string, most int) (release func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owners[owner] >= most {
		return nil, fault.New(fault.RateLimited, "you have %d %s open, which is all that you may have here", most, s.what)
	}
	if s.open >= s.most {
		return nil, fault.New(fault.Overloaded, "%d %s are open here, which is all that this server carries", s.most, s.what)
	}
	s.open++
	s.owners[owner]++
	return sync.OnceFunc(func() { s.release(owner) }), nil
}

func (s *Slots) release(owner string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	if s.owners[owner]--; s.owners[owner] == 0 {
		delete(s.owners, owner)
	}
}

// Open returns how many are open.
func (s *Slots) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}
