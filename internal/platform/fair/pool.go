package fair

import (
	"context"
	"slices"
	"sync"
)

// Pool divides slots or bytes among owners.
//
//   - An owner that holds nothing may take all that is free.
//   - Any other may take more only if at least as much as it then holds stays free. So one owner
//     alone holds at most half of the pool, a second one at most half of the rest.
//   - Otherwise requests wait. The owner that holds least comes first, and owners that hold the
//     same alternate, however many requests each has.
type Pool struct {
	mu      sync.Mutex
	free    int64
	held    map[string]int64
	waiting map[string][]*request // by owner, in order of arrival
	order   []string              // owners with waiting requests, round robin
}

// request is a waiting Acquire. granted is closed when it succeeds.
type request struct {
	n       int64
	granted chan struct{}
}

// NewPool returns a Pool of a size.
func NewPool(size int64) *Pool {
	return &Pool{free: size, held: make(map[string]int64), waiting: make(map[string][]*request)}
}

// Acquire waits until an owner may take n more, and holds them until release is called. release is
// idempotent. The error is that of ctx. A request for more than the size never succeeds.
func (p *Pool) Acquire(ctx context.Context, owner string, n int64) (release func(), err error) {
	w := &request{n, make(chan struct{})}
	p.mu.Lock()
	if len(p.waiting[owner]) == 0 {
		p.order = append(p.order, owner)
	}
	p.waiting[owner] = append(p.waiting[owner], w)
	p.grant()
	p.mu.Unlock()
	release = sync.OnceFunc(func() { p.release(owner, n) })
	select {
	case <-w.granted:
		return release, nil
	case <-ctx.Done():
	}
	if p.cancel(owner, w) {
		return nil, ctx.Err()
	}
	return release, nil // it was granted meanwhile
}

// cancel removes a waiting request. It returns false if the request was granted.
func (p *Pool) cancel(owner string, w *request) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.waiting[owner], w)
	if i < 0 {
		return false
	}
	p.waiting[owner] = slices.Delete(p.waiting[owner], i, i+1)
	if len(p.waiting[owner]) == 0 {
		delete(p.waiting, owner)
		p.order = slices.DeleteFunc(p.order, func(one string) bool { return one == owner })
	}
	p.grant() // it may have blocked others
	return true
}

func (p *Pool) release(owner string, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free += n
	if p.held[owner] -= n; p.held[owner] == 0 {
		delete(p.held, owner)
	}
	p.grant()
}

// grant grants all requests that may be granted.
func (p *Pool) grant() {
	for {
		i := p.next()
		if i < 0 {
			return
		}
		owner := p.order[i]
		w := p.waiting[owner][0]
		p.free -= w.n
		p.held[owner] += w.n
		close(w.granted)
		p.order = slices.Delete(p.order, i, i+1)
		if p.waiting[owner] = p.waiting[owner][1:]; len(p.waiting[owner]) > 0 {
			p.order = append(p.order, owner)
		} else {
			delete(p.waiting, owner)
		}
	}
}

// next returns the index of the owner whose request is granted next, or -1. Owners that hold nothing
// do not overtake each other, so that a large request does not starve.
func (p *Pool) next() int {
	best := -1
	for i, owner := range p.order {
		has, n := p.held[owner], p.waiting[owner][0].n
		switch {
		case has == 0 && n > p.free:
			return -1
		case has == 0:
			return i
		case has+n <= p.free-n && (best < 0 || has < p.held[p.order[best]]):
			best = i
		}
	}
	return best
}
