package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/uuid"
	"golang.org/x/sync/semaphore"

	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/platform/batch"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/platform/tracing"
	"triprize/internal/sale"
)

const (
	// maxRetries is how often jobs are tried again whose campaign or wallet another transaction has
	// locked. With the pauses, from retryPause to longestPause, that is about a second.
	maxRetries = 10
	// quickRetries is how often a task without a slot for retries tries them: in some 60 ms a job of a
	// campaign that others sell in has its turn, and the task ends soon.
	quickRetries = 5
	retryPause   = 2 * time.Millisecond
	maxPause     = 256 * time.Millisecond

	// redisTimeout bounds each optional call to Redis.
	redisTimeout = time.Second
)

// finalizer finalizes jobs of one kind, many in one transaction.
type finalizer struct {
	worker      *Worker
	kind        job.Kind
	finalize    func(ctx context.Context, refs []job.Ref, wait sale.Wait) (sale.Report, error)
	retries     *semaphore.Weighted // half of the kind's slots, for tasks that try jobs again
	minInterval time.Duration       // a shard begins its batches of this kind so far apart, under load
}

// newFinalizer returns a finalizer of a kind that has so many slots: none would mean that a setting has no
// default, and that all tasks had one slot for retries.
func (w *Worker) newFinalizer(kind job.Kind, finalize func(ctx context.Context, refs []job.Ref, wait sale.Wait) (sale.Report, error), slots int) *finalizer {
	if slots < 1 {
		panic("worker: a finalizer without slots")
	}
	return &finalizer{worker: w, kind: kind, finalize: finalize, retries: semaphore.NewWeighted(int64(max(slots/2, 1)))}
}

// errLocked is the error of a task that has ended with jobs whose campaign or wallet stays locked.
var errLocked = queue.Snooze(errors.New("wallets or campaigns of these jobs are locked by another transaction"))

// walletsLocked is errLocked, and names the jobs whose wallet it is.
type walletsLocked struct {
	error
	jobs []uuid.UUID
}

// Unwrap returns errLocked.
func (e *walletsLocked) Unwrap() error { return e.error }

// stayLocked returns the error of a task with items that stay locked.
func stayLocked(items []*item) error {
	err := &walletsLocked{error: errLocked}
	for _, it := range items {
		if it.verdict == walletLocked {
			err.jobs = append(err.jobs, it.ID)
		}
	}
	return err
}

// jobs finalizes jobs through the shards. Jobs with locked rows are tried again for about a second, while
// half of the slots are left for other tasks; those of a campaign that has just stayed locked are not.
func (s *finalizer) jobs(ctx context.Context, jobs []job.Ref, again bool) error {
	if again {
		return s.redelivered(ctx, jobs)
	}
	items := make([]*item, len(jobs))
	for i, ref := range jobs {
		items[i] = &item{Ref: ref}
	}
	left, err := s.submit(ctx, items)
	if err != nil || len(left) == 0 {
		return err
	}
	retried, known := s.worker.locked.others(left)
	most := quickRetries
	if len(retried) > 0 && s.retries.TryAcquire(1) {
		defer s.retries.Release(1)
		most = maxRetries
	}
	for pause := retryPause; len(retried) > 0; pause = min(2*pause, maxPause) {
		if retried[0].retries == most {
			if most == maxRetries {
				s.worker.locked.note(retried)
			}
			return stayLocked(append(known, retried...))
		}
		if err := s.worker.pause(ctx, pause/2+rand.N(pause)); err != nil { //nolint:gosec // a jitter is no secret
			return err
		}
		for _, it := range retried {
			it.retries++
		}
		if retried, err = s.submit(ctx, retried); err != nil {
			return err
		}
	}
	if len(known) > 0 {
		return stayLocked(known)
	}
	return nil
}

// submit sends items through their shards, again after a transient fault. It returns those whose rows
// are locked. When jobs fail for another reason it returns an error, after the others were tried, too.
func (s *finalizer) submit(ctx context.Context, items []*item) (left []*item, err error) {
	for delays := newBackoff(); ; {
		verdicts, errs := batch.DoAll(ctx, items, func(it *item) *batch.Coalescer[*item, verdict] {
			return s.worker.shardOf(it.CampaignID).batches[s.kind]
		})
		left = nil
		var broken []error
		transient := false
		for i, it := range items {
			switch err := errs[i]; {
			case err == nil:
				if it.verdict = verdicts[i]; it.verdict != done {
					left = append(left, it)
				}
			case isTransient(err):
				left, transient = append(left, it), true
			default:
				broken = append(broken, err)
			}
		}
		switch {
		case len(broken) > 0:
			return nil, fmt.Errorf("%d jobs not done: %w", len(broken), broken[0])
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !transient:
			s.worker.locked.forget(items)
			return left, nil
		case s.kind == job.KindPayment: // it becomes due by itself: no slot waits for the database
			return nil, queue.Snooze(errors.New("the database is away, or too busy"))
		}
		if err := s.worker.pause(ctx, delays.NextBackOff()); err != nil {
			return nil, err
		}
		items = left
	}
}

// run runs one transaction and the work that follows its commit.
func (s *finalizer) run(ctx context.Context, refs []job.Ref, wait sale.Wait) (sale.Report, error) {
	w := s.worker
	ctx, spans := tracing.Batch(ctx, string(s.kind), len(refs), job.Traces(refs))
	report, err := s.finalize(postgres.As(ctx, transactionsOf(string(s.kind))), refs, wait)
	setOutcomes(spans, report)
	spans.End(err)
	if err != nil {
		if isTransient(err) {
			w.metrics.faults.Inc()
		}
		return sale.Report{}, err
	}
	for _, err := range report.Broken {
		w.logger.Error("a wallet is broken: its job failed", "kind", s.kind, "error", err.Error()) // a text: another wallet is another line
	}
	w.triggers.Note(report.Messages...)
	w.dispatcher.Dispatch(job.Tasks(report.Messages)...)
	w.dispatchDue(payment.Items(report.Payments))
	w.dispatchDue(report.Refunds)
	w.afterCommit.finalized(report.Finalized)
	w.metrics.finalized(s.kind, report.Finalized)
	job.LogFinal(ctx, w.logger, report.Finalized)
	w.metrics.requeued.WithLabelValues(string(s.kind)).Add(float64(len(report.Busy)))
	w.metrics.positions.Add(float64(report.Sold))
	w.holds.Count(inventory.HoldsUsed, report.HoldsUsed)
	w.holds.Count(inventory.HoldsReclaimed, report.HoldsReclaimed)
	return report, nil
}

// setOutcomes sets the outcomes of a batch in the spans of its jobs.
func setOutcomes(spans *tracing.Shared, report sale.Report) {
	if spans == nil {
		return
	}
	for i := range report.Finalized {
		spans.Set(report.Finalized[i].ID, tracing.Outcome, report.Finalized[i].Code())
	}
	for _, ref := range report.Busy {
		spans.Set(ref.ID, tracing.Outcome, outcomeRequeued)
	}
}

// isTransient tells whether an error is transient, and not the fault of a job.
func isTransient(err error) bool {
	return postgres.IsTransient(err) || errors.Is(err, batch.ErrFull)
}

// newBackoff returns the delays between attempts after transient faults: 1, 2, 4
// … 30 s, each with a jitter.
func newBackoff() *backoff.ExponentialBackOff {
	delay := backoff.NewExponentialBackOff()
	delay.InitialInterval, delay.Multiplier, delay.MaxInterval = time.Second, 2, 30*time.Second
	return delay
}

// pause waits for d. It returns an error when ctx ends or the worker shuts down.
func (w *Worker) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return queue.Snooze(ctx.Err())
	case <-w.draining.Done():
		return queue.Snooze(errDraining)
	}
}

const (
	lockedFor = 2 * time.Second
	maxLocked = 10_000
)

// lockedCampaigns are those whose jobs this process has put off lately, because they stayed locked:
// their jobs are tried once.
type lockedCampaigns struct {
	mu    sync.Mutex
	until map[uuid.UUID]time.Time
}

// note notes the campaigns of items that found them locked.
func (l *lockedCampaigns) note(items []*item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.until == nil {
		l.until = make(map[uuid.UUID]time.Time)
	}
	maps.DeleteFunc(l.until, func(_ uuid.UUID, until time.Time) bool { return now.After(until) })
	for _, it := range items {
		if _, known := l.until[it.CampaignID]; it.verdict == campaignLocked && (known || len(l.until) < maxLocked) {
			l.until[it.CampaignID] = now.Add(lockedFor)
		}
	}
}

// others returns the items whose campaigns are not known to be locked, and those whose campaigns are: it
// notes these again.
func (l *lockedCampaigns) others(items []*item) (others, known []*item) {
	for _, it := range items {
		if l.has(it.CampaignID) {
			known = append(known, it)
		} else {
			others = append(others, it)
		}
	}
	l.note(known)
	return others, known
}

func (l *lockedCampaigns) has(id uuid.UUID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	until, known := l.until[id]
	return known && time.Now().Before(until)
}

// forget forgets the campaigns of items that found them free.
func (l *lockedCampaigns) forget(items []*item) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.until) == 0 {
		return
	}
	for _, it := range items {
		if it.verdict != campaignLocked {
			delete(l.until, it.CampaignID)
		}
	}
}
