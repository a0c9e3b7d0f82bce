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
)

const (
	// aloneTime and sharedTime are how much of the workers' time the unfinished jobs of a
	// client may need: of one that is alone, and of all clients but one together. So that one
	// finds its job done after sharedTime, however many jobs the others have.
	aloneTime  = time.Second
	sharedTime = 20 * time.Millisecond
	// leastAlone and leastShared are so many jobs that batches are still worth it.
	leastAlone  = 1024
	leastShared = 8
	// unfinishedFor is how long a job counts as unfinished: one that waits for a lock or for
	// money is not work.
	unfinishedFor = 250 * time.Millisecond
	// stalledAfter is how long no job has become final when the workers count as away. Jobs
	// are then accepted without a window: they wait in Postgres.
	stalledAfter = 500 * time.Millisecond
)

// anonymousClient is what all anonymous callers count as; no client has this name.
const anonymousClient = "\x00anonymous"

// shares gives each client its share of a process: of the connections that read, and of
// the jobs that are not finished.
type shares struct {
	reads *fair.Semaphore
	jobs  *fair.Semaphore

	mu         sync.Mutex
	unfinished map[uuid.UUID]func() // what ends the count of a job that this process has accepted
	finished   finishRate
}

func newShares(settings config.Settings, registry prometheus.Registerer) *shares {
	s := &shares{unfinished: make(map[uuid.UUID]func())}
	half := max(int(settings.Postgres.MaxConnections)/2, 1)
	ofAddress := anonymousOfAddress
	if settings.Limits.AddressRate == 0 {
		ofAddress = anonymousWaiting
	}
	s.reads = fair.New(fair.Options{Total: half, Waiting: settings.API.MaxConnections,
		Window: func(client string, _ int) int {
			if client == anonymousClient {
				return min(anonymousServed, half)
			}
			return half
		},
		MayWait: func(c fair.Caller) (ofClient, ofCaller int) {
			switch {
			case c.Client == anonymousClient:
				return anonymousWaiting, ofAddress
			case c.User != "":
				return math.MaxInt, waitingOfUser
			}
			return math.MaxInt, math.MaxInt
		}})
	s.jobs = fair.New(fair.Options{Waiting: settings.API.MaxConnections, Window: s.window,
		MayWait: func(c fair.Caller) (ofClient, ofCaller int) {
			if c.User != "" {
				return settings.Accept.MaxPending, waitingOfUser
			}
			return settings.Accept.MaxPending, settings.Accept.MaxPending
		}})
	for of, semaphore := range map[string]*fair.Semaphore{"reads": s.reads, "jobs": s.jobs} {
		registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "triprize_share_waiting",
			Help: "Requests that wait for their turn: others of their client, or of other clients, are served.", ConstLabels: prometheus.Labels{"of": of}},
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
	leave, err = of.Enter(ctx, caller)
	switch {
	case errors.Is(err, fair.ErrOwnWaiting):
		return nil, fault.Wrap(fault.RateLimited, err, "too many of your requests are waiting; wait for their answers, and send this one again")
	case err != nil:
		return nil, fault.Wrap(fault.Overloaded, err, "too many requests are waiting; send this one again later")
	}
	return leave, nil
}

// window is how many unfinished jobs a client may have.
func (s *shares) window(_ string, others int) int {
	s.mu.Lock()
	perSecond, isStalled := s.finished.at(time.Now())
	s.mu.Unlock()
	switch {
	case isStalled:
		return math.MaxInt
	case others == 0:
		return max(leastAlone, int(perSecond*aloneTime.Seconds()))
	}
	return max(leastShared, int(perSecond*sharedTime.Seconds())/others)
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
	s.finished.add(time.Now(), len(ids))
	s.mu.Unlock()
	for _, id := range ids {
		s.finish(id)
	}
}

// finishRate is how many jobs become final in a second.
type finishRate struct {
	last      time.Time // when the last ones did
	begun     time.Time // of the interval
	n         int       // in the interval
	perSecond float64   // in the interval before
}

// rateInterval is how long jobs are counted for one rate.
const rateInterval = 250 * time.Millisecond

func (r *finishRate) add(now time.Time, n int) {
	if elapsed := now.Sub(r.begun); elapsed >= rateInterval {
		r.perSecond, r.begun, r.n = float64(r.n)/elapsed.Seconds(), now, 0
	}
	r.n += n
	r.last = now
}

func (r *finishRate) at(now time.Time) (perSecond float64, isStalled bool) {
	return r.perSecond, now.Sub(r.last) > stalledAfter
}
