package fair

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"
)

// ErrOwnWaiting means that as many requests of the caller wait as may; nothing was done.
var ErrOwnWaiting = errors.New("fair: too many requests of the caller are waiting")

// ErrAllWaiting means that as many requests wait as may; nothing was done.
var ErrAllWaiting = errors.New("fair: too many requests are waiting")

// Caller is a client, and the user of a client that has users.
type Caller struct{ Client, User string }

// Options bound a Semaphore.
type Options struct {
	Total   int // inside at once; 0: no bound
	Waiting int // of all callers
	// Window returns how many of a client may be inside at once, when so many other clients
	// are here or were lately.
	Window func(client string, others int) int
	// MayWait returns how many of the caller's client, and of the caller itself, may wait.
	MayWait func(caller Caller) (ofClient, ofCaller int)
}

// lately is how long a client that has come counts as present.
const lately = 5 * time.Second

// Semaphore lets callers in. It is safe for concurrent use.
type Semaphore struct {
	options Options

	mu      sync.Mutex
	clients map[string]*client // those inside or waiting
	turns   list.List          // of *client: those that wait
	inside  int
	waiting int
	seen    [2]presence // the last two different clients
}

type presence struct {
	client string
	at     time.Time
}

type client struct {
	name    string
	inside  int
	waiting int
	users   map[string]*user
	turns   list.List     // of *user: those that wait
	place   *list.Element // in Semaphore.turns; nil: none waits
}

type user struct {
	name    string
	waiters list.List // of *waiter
	place   *list.Element
}

type waiter struct {
	caller Caller
	place  *list.Element
	letIn  chan struct{} // closed when it is in
}

// New returns a Semaphore.
func New(options Options) *Semaphore {
	return &Semaphore{options: options, clients: make(map[string]*client)}
}

// Enter waits until the caller may go in. leave lets the next one in; a second call does
// nothing. The error is ErrOwnWaiting, ErrAllWaiting, or that of ctx.
func (s *Semaphore) Enter(ctx context.Context, caller Caller) (leave func(), err error) {
	leave = sync.OnceFunc(func() { s.leave(caller.Client) })
	s.mu.Lock()
	its := s.present(caller.Client)
	if its.waiting == 0 && s.hasRoom(its) {
		its.inside++
		s.inside++
		s.mu.Unlock()
		return leave, nil
	}
	w, err := s.join(its, caller)
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	select {
	case <-w.letIn:
		return leave, nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-w.letIn: // at the same moment
		return leave, nil
	default:
	}
	s.remove(its, w)
	s.forget(its)
	return nil, ctx.Err()
}

// Waiting returns how many wait.
func (s *Semaphore) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting
}

// present returns a client and notes that it has come.
func (s *Semaphore) present(name string) *client {
	now := time.Now()
	if s.seen[0].client != name {
		s.seen[1] = s.seen[0]
		s.seen[0].client = name
	}
	s.seen[0].at = now
	its := s.clients[name]
	if its == nil {
		its = &client{name: name, users: make(map[string]*user)}
		s.clients[name] = its
	}
	return its
}

// others returns how many clients but name are here, or at least that one was lately.
func (s *Semaphore) others(name string) int {
	n := len(s.clients)
	if s.clients[name] != nil {
		n--
	}
	for _, p := range s.seen {
		if n == 0 && p.client != name && !p.at.IsZero() && time.Since(p.at) < lately {
			n = 1
		}
	}
	return n
}

func (s *Semaphore) hasRoom(its *client) bool {
	if s.options.Total > 0 && s.inside >= s.options.Total {
		return false
	}
	return s.options.Window == nil || its.inside < s.options.Window(its.name, s.others(its.name))
}

// join makes a caller wait.
func (s *Semaphore) join(its *client, caller Caller) (*waiter, error) {
	who := its.users[caller.User]
	waiting := 0
	if who != nil {
		waiting = who.waiters.Len()
	}
	ofClient, ofCaller := s.options.MayWait(caller)
	switch {
	case its.waiting >= ofClient || waiting >= ofCaller:
		s.forget(its)
		return nil, ErrOwnWaiting
	case s.waiting >= s.options.Waiting:
		s.forget(its)
		return nil, ErrAllWaiting
	}
	if who == nil {
		who = &user{name: caller.User}
		its.users[caller.User] = who
		who.place = its.turns.PushBack(who)
	}
	w := &waiter{caller: caller, letIn: make(chan struct{})}
	w.place = who.waiters.PushBack(w)
	s.waiting++
	if its.waiting++; its.place == nil {
		its.place = s.turns.PushBack(its)
	}
	return w, nil
}

// remove ends the wait of one.
func (s *Semaphore) remove(its *client, w *waiter) {
	who := its.users[w.caller.User]
	who.waiters.Remove(w.place)
	s.waiting--
	if who.waiters.Len() == 0 {
		its.turns.Remove(who.place)
		delete(its.users, who.name)
	}
	if its.waiting--; its.waiting == 0 {
		s.turns.Remove(its.place)
		its.place = nil
	}
}

func (s *Semaphore) forget(its *client) {
	if its.inside == 0 && its.waiting == 0 {
		delete(s.clients, its.name)
	}
}

func (s *Semaphore) leave(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	its := s.clients[name]
	its.inside--
	s.inside--
	s.letIn()
	s.forget(its)
}

// letIn lets in as many as there is room for, in turn.
func (s *Semaphore) letIn() {
	for blocked := 0; blocked < s.turns.Len() && (s.options.Total == 0 || s.inside < s.options.Total); {
		its := s.turns.Front().Value.(*client) //nolint:forcetypeassert // it has no other, here and below
		s.turns.MoveToBack(its.place)
		if !s.hasRoom(its) {
			blocked++
			continue
		}
		blocked = 0
		who := its.turns.Front().Value.(*user) //nolint:forcetypeassert // as above
		its.turns.MoveToBack(who.place)
		w := who.waiters.Front().Value.(*waiter) //nolint:forcetypeassert // as above
		s.remove(its, w)
		its.inside++
		s.inside++
		close(w.letIn)
	}
}
