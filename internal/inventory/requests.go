package inventory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/campaign"
	"triprize/internal/domain/metadata"
	"triprize/internal/job"
	"triprize/internal/platform/batch"
	"triprize/internal/platform/config"
	"triprize/internal/platform/lock"
	"triprize/internal/platform/postgres"
	"triprize/internal/trail"
)

// HoldRequest is a request for a hold.
type HoldRequest struct {
	Job job.Request // with its campaign and user
	Selection
	TTL      time.Duration
	Metadata metadata.Map
	Viewer   string // the role of the reader of the answer, for render
}

// Holds makes, extends and releases holds.
type Holds struct {
	gate      *postgres.Gate
	db        postgres.DB // for reading
	rowWait   time.Duration
	retryWait time.Duration
	settings  config.Holds
	acquire   lock.AcquireFunc // nil: without locks, and without the cache of taken positions
	metrics   *HoldMetrics
	render    func(h Hold, viewer string) any
	taken     *takenCache
	terms     *campaign.TermsCache
	rechecks  *batch.Coalescer[HoldRequest, precheck] // of requests for positions that are known to be taken
	prechecks *batch.Coalescer[HoldRequest, precheck]
	campaigns *batch.Queues[uuid.UUID, *task, result] // a queue per campaign
}

const (
	prechecksAtOnce = 2

	batchSize = 128              // most holds in one transaction
	linger    = time.Millisecond // under load, how long a batch waits for more requests
	pending   = 4096             // requests waiting for a batch; beyond it the answer is 503 overloaded
	timeout   = 10 * time.Second // one batch, from first statement to commit; and how long a request waits for a campaign that is locked elsewhere

	// flushes is the number of transactions at once, each of another campaign, and
	// retryFlushes that of further ones, of campaigns that were found locked.
	flushes      = 4
	retryFlushes = 2

	// rowWait is how long a transaction waits for its campaign, when no other campaign
	// waits for a flush. retryWait is how long it waits when the campaign was found
	// locked, and retryBackoff the pause of the campaign between two attempts.
	rowWait      = 100 * time.Millisecond
	retryWait    = 250 * time.Millisecond
	retryBackoff = 50 * time.Millisecond

	// drain is how long Close still serves requests that are waiting.
	drain = 2 * time.Second

	// recheckLinger is how long a recheck waits for more requests. Requests for taken
	// positions come from the lock one by one; this way one query serves many.
	recheckLinger = 20 * time.Millisecond
)

// NewHolds returns Holds; Close closes them. The process shares terms. acquire takes the
// locks of positions; nil goes without. render makes the answer's body from a hold.
func NewHolds(gate *postgres.Gate, settings config.Holds, terms *campaign.TermsCache, acquire lock.AcquireFunc, metrics *HoldMetrics, render func(h Hold, viewer string) any) *Holds {
	s := &Holds{gate: gate, db: gate.Pool(), rowWait: rowWait, retryWait: retryWait, settings: settings, acquire: acquire, metrics: metrics,
		render: render, taken: newTakenCache(), terms: terms}
	size, timeout := cmp.Or(settings.BatchSize, batchSize), cmp.Or(settings.Timeout, timeout)
	options := batch.Options{Size: size, Linger: linger, InFlight: prechecksAtOnce, Pending: pending, Timeout: timeout, Drain: drain, Whole: postgres.IsTransient}
	s.prechecks = batch.New(options, s.precheck)
	s.campaigns = batch.NewQueues(batch.QueueOptions{Size: size, Linger: linger, InFlight: flushes,
		Retrying: retryFlushes, Backoff: retryBackoff, Pending: pending, Timeout: timeout, Drain: drain,
		Whole: postgres.IsTransient, Requeue: postgres.IsLocked}, s.flush)
	options.InFlight = 1
	options.Linger = max(options.Linger, recheckLinger)
	s.rechecks = batch.New(options, s.recheck)
	return s
}

// Close finishes the requests that are waiting.
func (s *Holds) Close() {
	s.rechecks.Close()
	s.prechecks.Close()
	s.campaigns.Close()
}

// Create makes a hold, once per idempotency key. A recorded refusal is the problem of
// the job; any other refusal is in Err.
func (s *Holds) Create(ctx context.Context, r HoldRequest) (job.Accepted, error) {
	if done, refused, err := s.refuseTaken(ctx, r); err != nil || refused {
		return done, err
	}
	found, err := s.prechecks.Do(ctx, r)
	switch {
	case err != nil:
		return job.Accepted{}, err
	case found.retry:
		return found.earlier, nil
	case found.refusal != nil:
		return job.Accepted{Err: found.refusal}, nil
	}
	if s.acquire != nil && len(r.Positions) > 0 {
		if done, refused, err := s.refuseTaken(ctx, r); err != nil || refused {
			return done, err
		}
		unlock, err := s.lockPositions(ctx, r)
		if err != nil {
			return job.Accepted{}, err
		}
		if len(s.taken.of(r)) > 0 {
			unlock() // before the recheck: the next request need not wait for it
			unlock = func() {}
			if done, refused, err := s.refuseTaken(ctx, r); err != nil || refused {
				return done, err
			}
		}
		defer unlock()
	}
	made, err := s.campaigns.Do(ctx, r.Job.CampaignID, &task{HoldRequest: r})
	return made.Accepted, err
}

func (s *Holds) lockPositions(ctx context.Context, r HoldRequest) (unlock func(), err error) {
	names := make([]string, len(r.Positions))
	for i, p := range r.Positions {
		names[i] = fmt.Sprintf("position:%s:%d/%d", r.Job.CampaignID, p.Layer, p.Column)
	}
	slices.Sort(names) // one order everywhere, so that overlapping sets cannot deadlock
	if unlock, err = s.acquire(ctx, names...); err != nil {
		unlock = func() {} // go on without: Postgres decides
	}
	if ctx.Err() != nil {
		unlock()
		return nil, ctx.Err()
	}
	return unlock, nil
}

// refuseTaken refuses a request for positions that are known to be taken. It rechecks them
// first: an earlier request with the same key may have taken them, and they may be free again.
func (s *Holds) refuseTaken(ctx context.Context, r HoldRequest) (done job.Accepted, refused bool, err error) {
	if s.acquire == nil || len(s.taken.of(r)) == 0 {
		return done, false, nil
	}
	found, err := s.rechecks.Do(ctx, r)
	if err != nil || found.retry {
		return found.earlier, err == nil, err
	}
	gone := s.taken.of(r)
	if len(gone) == 0 { // they are free again
		return done, false, nil
	}
	known, err := s.terms.Of(ctx, s.db, r.Job.CampaignID)
	if err != nil {
		return done, false, err
	}
	return job.Accepted{Err: taken(r.Job.CampaignID, "", r.Positions, gone, known.Shape, found.now)}, true, nil
}

// Extend moves the deadline of an active hold by r.TTL, once per idempotency key, also while
// the sale is paused or over. r has the campaign of the hold. No deadline is later than
// holds.max_ttl from now, than the end of a sale that is drawn at its end, or than the hold
// quota of the user allows. A hold gets what these limits leave; where they leave nothing, the
// extension is refused and does not count.
func (s *Holds) Extend(ctx context.Context, r HoldRequest, id uuid.UUID) (job.Accepted, error) {
	done, err := s.campaigns.Do(ctx, r.Job.CampaignID, &task{HoldRequest: r, kind: extend, hold: id})
	return done.Accepted, err
}

// Release ends an active hold of a campaign and frees its positions at once. When the
// hold was released before, nothing changes and released is false.
func (s *Holds) Release(ctx context.Context, campaignID, id uuid.UUID) (released bool, err error) {
	done, err := s.campaigns.Do(ctx, campaignID, &task{HoldRequest: HoldRequest{Job: job.Request{CampaignID: campaignID, Actor: trail.Of(ctx)}}, kind: release, hold: id})
	if err == nil {
		err = done.Err
	}
	return done.released, err
}

// HoldMetrics counts what this process does with holds.
type HoldMetrics struct{ events *prometheus.CounterVec }

// The events that are counted. A hold that is over is expired when the sweep ends
// it, and reclaimed when a transaction that needs positions ends it first.
const (
	holdsMade      = "made"
	HoldsUsed      = "used"
	HoldsReleased  = "released"
	holdsExtended  = "extended"
	HoldsExpired   = "expired"
	HoldsReclaimed = "reclaimed"
)

// NewHoldMetrics registers the counters, all at 0.
func NewHoldMetrics(registry prometheus.Registerer) *HoldMetrics {
	m := &HoldMetrics{events: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "triprize_holds_total",
		Help: "Events of holds: made, used, released, extended, expired (ended by the sweep), reclaimed (expired, and ended by a request for positions before the sweep).",
	}, []string{"event"})}
	registry.MustRegister(m.events)
	for _, event := range []string{holdsMade, HoldsUsed, HoldsReleased, holdsExtended, HoldsExpired, HoldsReclaimed} {
		m.events.WithLabelValues(event)
	}
	return m
}

// Count adds n events; a nil HoldMetrics counts nothing.
func (m *HoldMetrics) Count(event string, n int) {
	if m != nil && n > 0 {
		m.events.WithLabelValues(event).Add(float64(n))
	}
}
