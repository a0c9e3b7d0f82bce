package fair

import (
	"context"
	"slices"
	"sync"
)

// Room is divided among owners: slots, or bytes.
//
//   - An owner that has nothing may take all that is free.
//   - Any other may take more only while as much as it then has stays free. So one alone
//     has half of the room at most, a second one half of the rest.
//   - When nothing is free, owners wait in turns, those that have least first. How many
//     others of an owner wait costs only that owner.
type Room struct {
	mu      sync.Mutex
	free    int64
	held    map[string]int64
	waiting map[string][]*want // of each owner, the first one first
	turns   []string           // the owners that wait, in the order of their turns
}

// want is what somebody wants of the room. Its channel is closed when it has got it.
type want struct {
	n   int64
	got chan struct{}
}

// NewRoom returns a Room of a size.
func NewRoom(size int64) *Room {
	return &Room{free: size, held: make(map[string]int64), waiting: make(map[string][]*want)}
}

// Acquire waits until an owner may have n more, and takes them until release is called; a
// second call of release does nothing. The error is that of ctx. More than the size is never
// free.
func (r *Room) Acquire(ctx context.Context, owner string, n int64) (release func(), err error) {
	w := &want{n, make(chan struct{})}
	r.mu.Lock()
	if len(r.waiting[owner]) == 0 {
		r.turns = append(r.turns, owner)
	}
	r.waiting[owner] = append(r.waiting[owner], w)
	r.grant()
	r.mu.Unlock()
	release = sync.OnceFunc(func() { r.release(owner, n) })
	select {
	case <-w.got:
		return release, nil
	case <-ctx.Done():
	}
	if r.leave(owner, w) {
		return nil, ctx.Err()
	}
	return release, nil // it was granted at the same moment
}

// leave takes a waiter out. It is false for one that has got what it wants.
func (r *Room) leave(owner string, w *want) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.Index(r.waiting[owner], w)
	if i < 0 {
		return false
	}
	r.waiting[owner] = slices.Delete(r.waiting[owner], i, i+1)
	if len(r.waiting[owner]) == 0 {
		delete(r.waiting, owner)
		r.turns = slices.DeleteFunc(r.turns, func(one string) bool { return one == owner })
	}
	r.grant() // others may have waited behind it
	return true
}

func (r *Room) release(owner string, n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free += n
	if r.held[owner] -= n; r.held[owner] == 0 {
		delete(r.held, owner)
	}
	r.grant()
}

// grant lets those in that may have what they want.
func (r *Room) grant() {
	for {
		i := r.next()
		if i < 0 {
			return
		}
		owner := r.turns[i]
		w := r.waiting[owner][0]
		r.free -= w.n
		r.held[owner] += w.n
		close(w.got)
		r.turns = slices.Delete(r.turns, i, i+1)
		if r.waiting[owner] = r.waiting[owner][1:]; len(r.waiting[owner]) > 0 {
			r.turns = append(r.turns, owner)
		} else {
			delete(r.waiting, owner)
		}
	}
}

// next returns whose turn it is, -1: nobody's. Owners that have nothing wait for each other:
// one that wants much is not overtaken for ever.
func (r *Room) next() int {
	best := -1
	for i, owner := range r.turns {
		has, n := r.held[owner], r.waiting[owner][0].n
		switch {
		case has == 0 && n > r.free:
			return -1
		case has == 0:
			return i
		case has+n <= r.free-n && (best < 0 || has < r.held[r.turns[best]]):
			best = i
		}
	}
	return best
}
