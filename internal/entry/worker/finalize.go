package worker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"
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
	// maxRetries bounds the retries of jobs whose campaign or wallet is locked. With the pauses, from
	// retryPause to maxPause, they take about a second.
	maxRetries = 10
	// quickRetries bounds them for a task without a retry slot: about 60 ms, enough to get the lock of a
	// campaign that other workers sell.
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
	finalize    func(ctx context.Context, refs []job.Ref, wait sale.LockWait) (sale.Report, error)
	retries     *semaphore.Weighted // half of the kind's slots, for tasks that retry jobs
	minInterval time.Duration       // between the starts of two batches of this kind in a shard
}

// newFinalizer returns a finalizer of a kind with slots. It panics without slots: a setting lacks its default.
func (w *Worker) newFinalizer(kind job.Kind, finalize func(ctx context.Context, refs []job.Ref, wait sale.LockWait) (sale.Report, error), slots int) *finalizer {
	if slots < 1 {
		panic("worker: a finalizer without slots")
	}
	return &finalizer{worker: w, kind: kind, finalize: finalize, retries: semaphore.NewWeighted(int64(max(slots/2, 1)))}
}

// errLocked is the error of a task with jobs whose campaign or wallet stays locked.
var errLocked = queue.Snooze(errors.New("wallets or campaigns of these jobs are locked by another transaction"))

// walletsLocked is errLocked with the jobs whose wallet is locked.
type walletsLocked struct {
	error
	jobs []uuid.UUID
}

// Unwrap returns errLocked.
func (e *walletsLocked) Unwrap() error { return e.error }

// lockedError returns the error of a task with items that stay locked.
func lockedError(items []*item) error {
	err := &walletsLocked{error: errLocked}
	for _, it := range items {
		if it.verdict == walletLocked {
			err.jobs = append(err.jobs, it.ID)
		}
	}
	return err
}

// jobs finalizes jobs through the shards. Jobs with locked rows are retried for about a second, in at most
// half of the slots. Those of a campaign that recently stayed locked are not retried.
func (s *finalizer) jobs(ctx context.Context, jobs []job.Ref, redelivered bool) error {
	if redelivered {
		return s.redelivered(ctx, jobs)
	}
	items := make([]*item, len(jobs))
	for i, ref := range jobs {
		items[i] = &item{Ref: ref}
	}
	blocked, err := s.submit(ctx, items)
	if err != nil || len(blocked) == 0 {
		return err
	}
	retried, known := s.worker.locked.split(blocked)
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
			return lockedError(append(known, retried...))
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
		return lockedError(known)
	}
	return nil
}

// submit sends items through their shards and retries after transient faults. It returns the items whose
// rows are locked. If jobs fail otherwise it returns an error, after it has tried all.
func (s *finalizer) submit(ctx context.Context, items []*item) (blocked []*item, err error) {
	for delays := newBackoff(); ; {
		verdicts, errs := batch.DoAll(ctx, items, func(it *item) *batch.Coalescer[*item, verdict] {
			return s.worker.shardOf(it.CampaignID).batches[s.kind]
		})
		blocked = nil
		var failed []error
		transient := false
		for i, it := range items {
			switch err := errs[i]; {
			case err == nil:
				if it.verdict = verdicts[i]; it.verdict != done {
					blocked = append(blocked, it)
				}
			case isTransient(err):
				blocked, transient = append(blocked, it), true
			default:
				failed = append(failed, err)
			}
		}
		switch {
		case len(failed) > 0:
			return nil, fmt.Errorf("%d jobs failed: %w", len(failed), failed[0])
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case !transient:
			s.worker.locked.forget(items)
			return blocked, nil
		case s.kind == job.KindPayment: // it becomes due automatically, so no slot waits for the database
			return nil, queue.Snooze(errors.New("the database is down or overloaded"))
		}
		if err := s.worker.pause(ctx, delays.NextBackOff()); err != nil {
			return nil, err
		}
		items = blocked
	}
}

// run runs one transaction and the work after its commit.
func (s *finalizer) run(ctx context.Context, refs []job.Ref, wait sale.LockWait) (sale.Report, error) {
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
		w.logger.Error("a wallet is broken: its job failed", "kind", s.kind, "error", err.Error()) // as text, so that each wallet has its own line
	}
	w.triggers.Note(report.Messages...)
	w.dispatcher.Dispatch(job.Tasks(report.Messages)...)
	w.dispatchDue(payment.Items(report.Payments))
	w.dispatchDue(report.Refunds)
	w.committed(ctx, s.kind, report.Finalized)
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

// isTransient reports whether an error is transient and not caused by the job.
func isTransient(err error) bool {
	return postgres.IsTransient(err) || errors.Is(err, batch.ErrFull)
}

// newBackoff returns the delays after transient faults: 1, 2, 4 … 30 s, each with jitter.
func newBackoff() *backoff.ExponentialBackOff {
	delay := backoff.NewExponentialBackOff()
	delay.InitialInterval, delay.Multiplier, delay.MaxInterval = time.Second, 2, 30*time.Second
	return delay
}

// pause waits for d. It returns an error if ctx ends or the worker shuts down.
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

// lockedCampaigns are campaigns that recently stayed locked through all retries of this process, and until
// when that counts: their jobs are tried only once.
type lockedCampaigns struct {
	*lru.Cache[uuid.UUID, time.Time]
}

func newLockedCampaigns() lockedCampaigns {
	campaigns, _ := lru.New[uuid.UUID, time.Time](maxLocked) // no error: the size is positive
	return lockedCampaigns{campaigns}
}

// note records the campaigns of items that are locked.
func (l lockedCampaigns) note(items []*item) {
	for _, it := range items {
		if it.verdict == campaignLocked {
			l.Add(it.CampaignID, time.Now().Add(lockedFor))
		}
	}
}

// split returns the items whose campaigns are not known to be locked, and those whose campaigns are. It
// records the latter again.
func (l lockedCampaigns) split(items []*item) (others, known []*item) {
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

func (l lockedCampaigns) has(id uuid.UUID) bool {
	until, _ := l.Get(id)
	return time.Now().Before(until)
}

// forget removes the campaigns of items that are not locked.
func (l lockedCampaigns) forget(items []*item) {
	for _, it := range items {
		if l.Len() > 0 && it.verdict != campaignLocked {
			l.Remove(it.CampaignID)
		}
	}
}
