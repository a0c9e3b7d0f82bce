// Package fair divides the capacity of a process among its clients, so that none takes all of it.
//
// A [Semaphore] limits active requests and admits waiting ones round robin:
//
//	client a: user 1 ▮▮▮▮▮▮▮▮  ┐
//	          user 2 ▮         ├─▶ a.1, b.3, a.2, b.3, a.1, …  at most Total active
//	client b: user 3 ▮▮        ┘
//
// Clients alternate, then the users of a client; requests of one user are served in the order
// of arrival. A client that is alone has all slots. A client whose window is full waits without
// blocking others.
//
// A [Pool] is for slots and bytes that are held for long and cannot be revoked. No owner can take all
// of it in several requests.
package fair

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"
)

// ErrCallerQueueFull means that too many requests of the caller wait; nothing was done.
var ErrCallerQueueFull = errors.New("fair: too many requests of the caller are waiting")

// ErrQueueFull means that too many requests of all callers wait; nothing was done.
var ErrQueueFull = errors.New("fair: too many requests are waiting")

// Caller is a client, and its user if it has users.
type Caller struct{ Client, User string }

// Options bound a Semaphore.
type Options struct {
	Total      int // active requests; 0: no limit
	MaxWaiting int // of all callers
	// Window returns how many requests of a client may be active, given the number of other clients
	// that are active, waiting, or were recently.
	Window func(client string, others int) int
	// MaxWaitingOf returns how many requests of the caller's client and of the caller itself may wait.
	MaxWaitingOf func(caller Caller) (ofClient, ofCaller int)
}

// recentFor is how long a client counts as present after its last request.
const recentFor = 5 * time.Second

// Semaphore limits active requests. It is safe for concurrent use.
type Semaphore struct {
	options Options

	mu       sync.Mutex
	clients  map[string]*client // with active or waiting requests
	rotation list.List          // of *client, those with waiting requests
	active   int
	waiting  int
	seen     [2]arrival // the last two different clients
}

type arrival struct {
	client string
	at     time.Time
}

type client struct {
	name     string
	active   int
	waiting  int
	users    map[string]*user
	rotation list.List     // of *user, those with waiting requests
	element  *list.Element // in Semaphore.rotation; nil: none waits
}

type user struct {
	name    string
	waiters list.List // of *waiter
	element *list.Element
}

type waiter struct {
	caller   Caller
	element  *list.Element
	admitted chan struct{} // closed when the request becomes active
}

// New returns a Semaphore.
func New(options Options) *Semaphore {
	return &Semaphore{options: options, clients: make(map[string]*client)}
}

// Acquire waits until a request of the caller may become active. release ends the request and is
// idempotent. The error is ErrCallerQueueFull, ErrQueueFull, or that of ctx.
func (s *Semaphore) Acquire(ctx context.Context, caller Caller) (release func(), err error) {
	release = sync.OnceFunc(func() { s.release(caller.Client) })
	s.mu.Lock()
	c := s.arrive(caller.Client)
	if c.waiting == 0 && s.hasSlot(c) {
		c.active++
		s.active++
		s.mu.Unlock()
		return release, nil
	}
	w, err := s.enqueue(c, caller)
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case <-w.admitted:
		return release, nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-w.admitted: // meanwhile
		return release, nil
	default:
	}
	s.dequeue(c, w)
	s.forget(c)
	return nil, ctx.Err()
}

// Waiting returns how many requests wait.
func (s *Semaphore) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting
}

// arrive returns a client and records its arrival.
func (s *Semaphore) arrive(name string) *client {
	now := time.Now()
	if s.seen[0].client != name {
		s.seen[1] = s.seen[0]
		s.seen[0].client = name
	}
	s.seen[0].at = now
	c := s.clients[name]
	if c == nil {
		c = &client{name: name, users: make(map[string]*user)}
		s.clients[name] = c
	}
	return c
}

// others returns how many clients except name are present. One that was recently counts if there is none.
func (s *Semaphore) others(name string) int {
	n := len(s.clients)
	if s.clients[name] != nil {
		n--
	}
	for _, p := range s.seen {
		if n == 0 && p.client != name && !p.at.IsZero() && time.Since(p.at) < recentFor {
			n = 1
		}
	}
	return n
}

func (s *Semaphore) hasSlot(c *client) bool {
	if s.options.Total > 0 && s.active >= s.options.Total {
		return false
	}
	return s.options.Window == nil || c.active < s.options.Window(c.name, s.others(c.name))
}

// enqueue adds a waiting request.
func (s *Semaphore) enqueue(c *client, caller Caller) (*waiter, error) {
	u := c.users[caller.User]
	waiting := 0
	if u != nil {
		waiting = u.waiters.Len()
	}
	ofClient, ofCaller := s.options.MaxWaitingOf(caller)
	switch {
	case c.waiting >= ofClient || waiting >= ofCaller:
		s.forget(c)
		return nil, ErrCallerQueueFull
	case s.waiting >= s.options.MaxWaiting:
		s.forget(c)
		return nil, ErrQueueFull
	}
	if u == nil {
		u = &user{name: caller.User}
		c.users[caller.User] = u
		u.element = c.rotation.PushBack(u)
	}
	w := &waiter{caller: caller, admitted: make(chan struct{})}
	w.element = u.waiters.PushBack(w)
	s.waiting++
	if c.waiting++; c.element == nil {
		c.element = s.rotation.PushBack(c)
	}
	return w, nil
}

// dequeue removes a waiting request.
func (s *Semaphore) dequeue(c *client, w *waiter) {
	u := c.users[w.caller.User]
	u.waiters.Remove(w.element)
	s.waiting--
	if u.waiters.Len() == 0 {
		c.rotation.Remove(u.element)
		delete(c.users, u.name)
	}
	if c.waiting--; c.waiting == 0 {
		s.rotation.Remove(c.element)
		c.element = nil
	}
}

func (s *Semaphore) forget(c *client) {
	if c.active == 0 && c.waiting == 0 {
		delete(s.clients, c.name)
	}
}

func (s *Semaphore) release(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.clients[name]
	c.active--
	s.active--
	s.admit()
	s.forget(c)
}

// admit makes waiting requests active while there are slots, round robin.
func (s *Semaphore) admit() {
	for blocked := 0; blocked < s.rotation.Len() && (s.options.Total == 0 || s.active < s.options.Total); {
		c := s.rotation.Front().Value.(*client) //nolint:forcetypeassert // it has no other, here and below
		s.rotation.MoveToBack(c.element)
		if !s.hasSlot(c) {
			blocked++
			continue
		}
		blocked = 0
		u := c.rotation.Front().Value.(*user) //nolint:forcetypeassert // as above
		c.rotation.MoveToBack(u.element)
		w := u.waiters.Front().Value.(*waiter) //nolint:forcetypeassert // as above
		s.dequeue(c, w)
		c.active++
		s.active++
		close(w.admitted)
	}
}
