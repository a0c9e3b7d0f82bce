package httpapi

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/call"
	"triprize/internal/entry/httpapi/resource"
	"triprize/internal/job"
	"triprize/internal/platform/callerlimit"
	"triprize/internal/platform/config"
	"triprize/internal/platform/fair"
)

const (
	// anonymousServed is how many requests without a credential are served at once, and
	// anonymousWaiting how many wait: those of clients find most connections to Postgres free.
	anonymousServed  = 2
	anonymousWaiting = 256
	// anonymousOfAddress is how many of these may have one address, if addresses have a
	// rate: without one, all may have the address of a proxy.
	anonymousOfAddress = 16
	// waitingOfUser is how many requests of one user's tokens may wait.
	waitingOfUser = 32

	// alone is how many unfinished jobs a client may have that is alone.
	alone = 1024
	// beside is how many unfinished jobs, and commands that are under way, all clients but one
	// may have, when there are several: a batch or so.
	beside = 128
	// unfinishedFor is how long a job counts as unfinished, and a command as under way: one
	// that waits for a lock or for money is not work.
	unfinishedFor = 250 * time.Millisecond
	// stalledAfter is how long no job has become final when the workers count as away. Jobs
	// are then accepted without a window: they wait in Postgres.
	stalledAfter = 500 * time.Millisecond
)

// anonymousClient is what all anonymous callers count as; no client has this name.
const anonymousClient = "\x00anonymous"

// shares gives each client its share of a process: of the connections that read, of the
// commands that are under way, and of the jobs that are not finished.
type shares struct {
	reads    *fair.Semaphore
	commands *fair.Semaphore
	jobs     *fair.Semaphore

	mu         sync.Mutex
	unfinished map[uuid.UUID]func() // jobs that this process has accepted, and what ends their count
	final      time.Time            // when the last jobs became final
}

func newShares(settings config.Settings, registry prometheus.Registerer) *shares {
	s := &shares{unfinished: make(map[uuid.UUID]func())}
	half := max(int(settings.Postgres.MaxConnections)/2, 1)
	ofAddress := anonymousOfAddress
	if settings.Limits.AddressRate == 0 {
		ofAddress = anonymousWaiting
	}
	mayWait := func(limit int) func(fair.Caller) (ofClient, ofCaller int) {
		return func(c fair.Caller) (ofClient, ofCaller int) {
			switch {
			case c.Client == anonymousClient:
				return anonymousWaiting, ofAddress
			case c.User != "":
				return limit, waitingOfUser
			}
			return limit, limit
		}
	}
	s.reads = fair.New(fair.Options{Total: half, MaxWaiting: settings.API.MaxConnections, MaxWaitingOf: mayWait(math.MaxInt), Window: func(client string, _ int) int {
		if client == anonymousClient {
			return min(anonymousServed, half)
		}
		return half
	}})
	s.commands = fair.New(fair.Options{MaxWaiting: settings.API.MaxConnections, MaxWaitingOf: mayWait(job.AcceptPending), Window: func(client string, others int) int {
		if client == anonymousClient {
			return anonymousServed
		}
		return divided(math.MaxInt, others)
	}})
	s.jobs = fair.New(fair.Options{MaxWaiting: settings.API.MaxConnections, MaxWaitingOf: mayWait(job.AcceptPending), Window: s.window})
	for of, semaphore := range map[string]*fair.Semaphore{"reads": s.reads, "commands": s.commands, "jobs": s.jobs} {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "triprize_share_waiting",
			Help: "Requests that wait until others, of their client or of other clients, are served.", ConstLabels: prometheus.Labels{"of": of}},
			func() float64 { return float64(semaphore.Waiting()) }))
	}
	return s
}

// enter waits for a caller's turn. The Error is rate-limited or overloaded.
func (s *shares) enter(ctx context.Context, of *fair.Semaphore, who call.Caller) (leave func(), err error) {
	caller := fair.Caller{Client: who.Client, User: who.User}
	if who.Role == resource.Anonymous {
		caller = fair.Caller{Client: anonymousClient, User: who.Client}
	}
	leave, err = of.Acquire(ctx, caller)
	switch {
	case errors.Is(err, fair.ErrCallerQueueFull) && who.Role == resource.Anonymous:
		return nil, fault.Wrap(fault.RateLimited, err, "too many requests without a key are waiting; retry later")
	case errors.Is(err, fair.ErrCallerQueueFull):
		return nil, fault.Wrap(fault.RateLimited, err, "too many of your requests are waiting; wait for their responses, then retry")
	case err != nil:
		return nil, fault.Wrap(fault.Overloaded, err, "too many requests are waiting; retry later")
	}
	return leave, nil
}

// enterRequest waits for the turn of a request. Anonymous callers have turns of their own for what is
// no read: those that read leave a way to those that bring a round. A command of a client counts as under way
// until leave, for a short time at most.
func (s *shares) enterRequest(ctx context.Context, isRead bool, who call.Caller) (leave func(), err error) {
	switch {
	case isRead:
		return s.enter(ctx, s.reads, who)
	case who.Role == resource.Anonymous:
		return s.enter(ctx, s.commands, who)
	}
	done, err := s.enter(ctx, s.commands, who)
	if err != nil {
		return nil, err
	}
	timer := time.AfterFunc(unfinishedFor, done)
	return func() { timer.Stop(); done() }, nil
}

// window is how many unfinished jobs a client may have.
func (s *shares) window(_ string, others int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.final) > stalledAfter {
		return math.MaxInt
	}
	return divided(alone, others)
}

// divided is the window of a client: one for itself, or its part of what all have that are there.
func divided(alone, others int) int {
	if others == 0 {
		return alone
	}
	return max(1, beside/others)
}

// follow counts a job as unfinished until it is announced, for a short time at most. end
// stops the count at once.
func (s *shares) follow(id uuid.UUID, leave func()) (end func()) {
	timer := time.AfterFunc(unfinishedFor, func() { s.finish(id) })
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unfinished[id] = func() { timer.Stop(); leave() }
	return func() { s.finish(id) }
}

func (s *shares) finish(id uuid.UUID) {
	s.mu.Lock()
	leave := s.unfinished[id]
	delete(s.unfinished, id)
	s.mu.Unlock()
	if leave != nil {
		leave()
	}
}

// announced is told of jobs that are final, or wait for a buyer.
func (s *shares) announced(ids []uuid.UUID) {
	s.mu.Lock()
	s.final = time.Now()
	s.mu.Unlock()
	for _, id := range ids {
		s.finish(id)
	}
}

// slots bound what callers keep open. Anonymous callers have half of the slots: the others
// are left to callers with a key.
type slots struct {
	all       *callerlimit.Limit
	anonymous *callerlimit.Limit
}

func newSlots(what string, limit int) slots {
	return slots{all: callerlimit.New(what, limit), anonymous: callerlimit.New(what+" without a key", max(1, limit/2))}
}

// enter takes a slot for a caller, who may have limit of them.
func (p slots) enter(who call.Caller, limit int) (release func(), err error) {
	slot, err := p.all.Acquire(who.Client, limit)
	if err != nil || who.Role != resource.Anonymous {
		return slot, err
	}
	leave, err := p.anonymous.Acquire(who.Client, limit)
	if err != nil {
		slot()
		if fault.CodeOf(err) == fault.Overloaded { // the server carries more: strangers fill no log with what it is short of
			err = fault.Wrap(fault.RateLimited, err, "callers without a key use all connections available to them; retry later")
		}
		return nil, err
	}
	return func() { leave(); slot() }, nil
}

func (p slots) taken() int { return p.all.Open() }
