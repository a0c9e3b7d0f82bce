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
	"triprize/internal/domain/fault"
	"triprize/internal/domain/metadata"
	"triprize/internal/job"
	"triprize/internal/platform/batch"
	"triprize/internal/platform/config"
	"triprize/internal/platform/lock"
	"triprize/internal/platform/postgres"
)

// Request is a request for a hold.
type HoldRequest struct {
	Job job.Request // with its campaign and user
	Selection
	TTL      time.Duration
	Metadata metadata.Map
	Viewer   string // the role of the reader of the answer; the service passes it to render
}

// Service makes, extends and releases holds.
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
	facts     *campaign.Facts
	looks     *batch.Coalescer[HoldRequest, precheck] // of requests for positions that are known to be taken
	prechecks *batch.Coalescer[HoldRequest, precheck]
	campaigns *batch.Queues[uuid.UUID, task, result] // every campaign has a queue of its own
}

const (
	prechecksAtOnce = 2

	batchSize    = 128              // most holds in one transaction
	linger       = time.Millisecond // under load, how long a batch waits for more requests
	holdsPending = 4096             // requests waiting for a batch; beyond it the answer is 503 overloaded
	holdTimeout  = 10 * time.Second // one batch, from first statement to commit; and how long a request waits for a campaign that is locked elsewhere

	// flushes is the number of transactions at once, each of another campaign, and
	// retryFlushes that of further ones, of campaigns that were found locked.
	flushes      = 4
	retryFlushes = 2

	// rowWait is how long a transaction waits for its campaign, when no other campaign
	// waits for a flush. retryWait is how long it waits when the campaign was found
	// locked, and retryBackoff how long the campaign rests between two attempts.
	rowWait      = 100 * time.Millisecond
	retryWait    = 250 * time.Millisecond
	retryBackoff = 50 * time.Millisecond

	// drain is how long Close still serves requests that are waiting.
	holdsDrain = 2 * time.Second

	// lookLinger is how long a look waits for more requests. Requests for
	// taken positions come from the lock one by one; this way one query serves many.
	lookLinger = 20 * time.Millisecond
)

// New returns a Service; Close closes it. The process shares facts. acquire takes the locks
// of positions; nil goes without. render makes the answer's body from a hold.
func NewHolds(gate *postgres.Gate, settings config.Holds, facts *campaign.Facts, acquire lock.AcquireFunc, metrics *HoldMetrics, render func(h Hold, viewer string) any) *Holds {
	s := &Holds{gate: gate, db: gate.Pool(), rowWait: rowWait, retryWait: retryWait, settings: settings, acquire: acquire, metrics: metrics,
		render: render, taken: newTakenCache(), facts: facts}
	size, timeout := cmp.Or(settings.BatchSize, batchSize), cmp.Or(settings.Timeout, holdTimeout)
	options := batch.Options{Size: size, Linger: linger, InFlight: prechecksAtOnce, Pending: holdsPending, Timeout: timeout, Drain: holdsDrain, Whole: postgres.IsTransient}
	s.prechecks = batch.New(options, s.precheck)
	s.campaigns = batch.NewQueues(batch.QueueOptions{Size: size, Linger: linger, InFlight: flushes,
		Retrying: retryFlushes, Backoff: retryBackoff, Pending: holdsPending, Timeout: timeout, Drain: holdsDrain,
		Whole: postgres.IsTransient, PutOff: postgres.IsPutOff}, s.flush)
	options.InFlight = 1
	options.Linger = max(options.Linger, lookLinger)
	s.looks = batch.New(options, s.lookAgain)
	return s
}

// Close finishes the requests that are waiting.
func (s *Holds) Close() {
	s.looks.Close()
	s.prechecks.Close()
	s.campaigns.Close()
}

// Create makes a hold, once per idempotency key. A recorded refusal is the problem of
// the job; any other refusal is in Err.
func (s *Holds) Create(ctx context.Context, r HoldRequest) (job.Done, error) {
	if s.acquire != nil {
		if answered, err := s.refuseTaken(ctx, r); err != nil || answered != nil {
			return valueOf(answered), err
		}
	}
	found, err := s.prechecks.Do(ctx, r)
	switch {
	case err != nil:
		return job.Done{}, err
	case found.retry:
		return job.Done{Accepted: found.earlier}, nil
	case found.refusal != nil:
		return job.Done{Err: found.refusal}, nil
	}
	if s.acquire != nil && len(r.Positions) > 0 {
		release, answered, err := s.queueUp(ctx, r)
		if err != nil || answered != nil {
			return valueOf(answered), err
		}
		defer release()
	}
	made, err := s.campaigns.Do(ctx, r.Job.CampaignID, task{HoldRequest: r})
	return made.Done, err
}

func valueOf(done *job.Done) job.Done {
	if done == nil {
		return job.Done{}
	}
	return *done
}

// queueUp waits for the locks of the positions that a request names. When they are
// known to be taken, before or after the wait, answered is the answer.
func (s *Holds) queueUp(ctx context.Context, r HoldRequest) (release func(), answered *job.Done, err error) {
	if answered, err = s.refuseTaken(ctx, r); err != nil || answered != nil {
		return nil, answered, err
	}
	names := make([]string, len(r.Positions))
	for i, p := range r.Positions {
		names[i] = fmt.Sprintf("position:%s:%d/%d", r.Job.CampaignID, p.Layer, p.Column)
	}
	slices.Sort(names) // one order everywhere, so that overlapping sets cannot deadlock
	release, err = s.acquire(ctx, names...)
	if err != nil {
		release = func() {} // go on without: Postgres decides
	}
	if ctx.Err() != nil {
		release()
		return nil, nil, ctx.Err()
	}
	if len(s.taken.among(r)) > 0 {
		release() // the next request need not wait for our key look-up
		answered, err = s.refuseTaken(ctx, r)
		return func() {}, answered, err
	}
	return release, nil, nil
}

// refuseTaken answers a request for positions that are known to be taken; nil means
// that it goes on. It looks first: an earlier request with the same key may have taken
// them, and they may be free again.
func (s *Holds) refuseTaken(ctx context.Context, r HoldRequest) (*job.Done, error) {
	if len(s.taken.among(r)) == 0 {
		return nil, nil //nolint:nilnil // no answer
	}
	found, err := s.looks.Do(ctx, r)
	switch {
	case err != nil:
		return nil, err
	case found.retry:
		return &job.Done{Accepted: found.earlier}, nil
	}
	taken := s.taken.among(r)
	if len(taken) == 0 {
		return nil, nil //nolint:nilnil // they are free again
	}
	known, err := s.facts.Of(ctx, s.db, r.Job.CampaignID)
	if err != nil {
		return nil, err
	}
	gone, now := make([]fault.Field, len(taken)), make([]*Found, len(taken))
	for i, at := range taken {
		gone[i] = TakenField("", at, r.Positions[at], known.Shape)
		now[i] = found.now[PositionID{CampaignID: r.Job.CampaignID, Position: r.Positions[at]}]
	}
	refusal := fault.Taken(gone...)
	refusal.RetryAt = FreeAt(now, time.Now())
	return &job.Done{Err: refusal}, nil
}

// Extend moves the deadline of an active hold by r.TTL, once per idempotency key: it adds to
// what is left. r has the campaign of the hold. The settings limit how often a hold can be
// extended. It is allowed while the sale is paused or over.
//
// Never more is left than holds.max_ttl, no hold outlasts the end of a sale that is drawn
// then, nor the time that its user may keep its positions in all its holds of them. A hold
// gets what these bounds leave, and is never shortened; where they leave nothing, the
// extension is refused and does not count.
func (s *Holds) Extend(ctx context.Context, r HoldRequest, id uuid.UUID) (job.Accepted, error) {
	done, err := s.campaigns.Do(ctx, r.Job.CampaignID, task{HoldRequest: r, kind: extend, hold: id})
	if err == nil {
		err = done.Err
	}
	return done.Accepted, err
}

// Release ends an active hold of a campaign and frees its positions at once. When the
// hold was released before, nothing changes and released is false.
func (s *Holds) Release(ctx context.Context, campaignID, id uuid.UUID) (released bool, err error) {
	done, err := s.campaigns.Do(ctx, campaignID, task{HoldRequest: HoldRequest{Job: job.Request{CampaignID: campaignID}}, kind: release, hold: id})
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
	HoldsMade      = "made"
	HoldsUsed      = "used"
	HoldsReleased  = "released"
	HoldsExtended  = "extended"
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
	for _, event := range []string{HoldsMade, HoldsUsed, HoldsReleased, HoldsExtended, HoldsExpired, HoldsReclaimed} {
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
