package holds

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/batch"
	"triprize/internal/platform/config"
	"triprize/internal/platform/lock"
	"triprize/internal/platform/postgres"
	"triprize/internal/store/inventory"
	"triprize/internal/store/job"
)

// Request asks for a hold.
type Request struct {
	Job job.Request // with its campaign and user
	inventory.Selection
	TTL time.Duration
}

// Service makes, extends and releases holds.
type Service struct {
	db        *pgxpool.Pool
	settings  config.Holds
	acquire   lock.AcquireFunc // nil: nobody queues, and nothing is remembered
	metrics   *inventory.HoldMetrics
	render    func(inventory.Hold) any
	taken     *takenCache
	retries   *batch.Coalescer[Request, precheck] // of requests for positions that were taken a moment ago
	prechecks *batch.Coalescer[Request, precheck]
	creates   *batch.Lanes[Request, job.Done]
}

const (
	lanes           = 4 // transactions at once; a campaign is always in the same lane
	prechecksAtOnce = 2

	// drain is how long requests whose clients were cut off are still served at shutdown.
	drain = 2 * time.Second

	// retryLinger is how long requests for taken positions wait for each other, so
	// that Postgres is asked for their keys together: they come from the lock one
	// by one.
	retryLinger = 20 * time.Millisecond
)

// New returns a Service; Close closes it. render makes the body that a hold is
// answered with. acquire takes locks that crowds wait at; nil is none.
func New(db *pgxpool.Pool, settings config.Holds, acquire lock.AcquireFunc, metrics *inventory.HoldMetrics, render func(inventory.Hold) any) *Service {
	s := &Service{db: db, settings: settings, acquire: acquire, metrics: metrics, render: render, taken: newTakenCache()}
	options := batch.Options{Size: settings.BatchSize, Linger: settings.BatchLinger, InFlight: prechecksAtOnce,
		Pending: settings.MaxPending, Timeout: settings.Timeout, Drain: drain, Whole: postgres.IsTransient}
	s.prechecks = batch.New(options, s.precheck)
	options.InFlight = 1
	s.creates = batch.NewLanes(lanes, options, s.createAll)
	options.Linger = max(options.Linger, retryLinger)
	s.retries = batch.New(options, s.findRetries)
	return s
}

// Close finishes the requests at hand.
func (s *Service) Close() {
	s.retries.Close()
	s.prechecks.Close()
	s.creates.Close()
}

// Create makes a hold, once per idempotency key. A refusal is in the job's problem,
// or in Err when it was not recorded.
func (s *Service) Create(ctx context.Context, r Request) (job.Done, error) {
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
	return s.creates.Of(r.Job.CampaignID).Do(ctx, r)
}

func valueOf(done *job.Done) job.Done {
	if done == nil {
		return job.Done{}
	}
	return *done
}

// queueUp waits for the locks of the positions that a request names, unless they
// are known to be taken: then answered is the answer.
func (s *Service) queueUp(ctx context.Context, r Request) (release func(), answered *job.Done, err error) {
	if answered, err = s.refuseTaken(ctx, r); err != nil || answered != nil {
		return nil, answered, err
	}
	names := make([]string, len(r.Positions))
	for i, p := range r.Positions {
		names[i] = fmt.Sprintf("position:%s:%d/%d", r.Job.CampaignID, p.Layer, p.Column)
	}
	slices.Sort(names) // in one order everywhere: of two overlapping sets neither blocks the other
	release, err = s.acquire(ctx, names...)
	if err != nil {
		release = func() {} // Postgres decides without us
	}
	if ctx.Err() != nil {
		release()
		return nil, nil, ctx.Err()
	}
	if len(s.taken.among(r)) > 0 {
		release() // who is next need not wait until our key is looked up
		answered, err = s.refuseTaken(ctx, r)
		return func() {}, answered, err
	}
	return release, nil, nil
}

// refuseTaken answers a request for positions that were found taken a moment
// ago; nil is no answer. They may have been taken by an earlier request with the
// same key: that is looked up.
func (s *Service) refuseTaken(ctx context.Context, r Request) (*job.Done, error) {
	taken := s.taken.among(r)
	if len(taken) == 0 {
		return nil, nil //nolint:nilnil // no answer
	}
	found, err := s.retries.Do(ctx, r)
	switch {
	case err != nil:
		return nil, err
	case found.retry:
		return &job.Done{Accepted: found.earlier}, nil
	}
	return &job.Done{Err: fault.Taken(taken...)}, nil
}
