package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/uuid"
	"golang.org/x/sync/semaphore"

	"triprize/internal/platform/batch"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/platform/tracing"
	"triprize/internal/service/sale"
	"triprize/internal/store/inventory"
	"triprize/internal/store/job"
	"triprize/internal/store/outbox"
	"triprize/internal/store/payment"
)

const (
	// mostRetries is how often jobs are tried again whose campaign or wallet another transaction has
	// locked. With the pauses, from retryPause to longestPause, that is about a second.
	mostRetries = 10
	// quickRetries is how often a task without a slot for retries tries them: in some 60 ms a job of a
	// campaign that others sell in has its turn, and the task ends soon.
	quickRetries = 5
	retryPause   = 2 * time.Millisecond
	longestPause = 256 * time.Millisecond

	// redisTimeout bounds each optional call to Redis.
	redisTimeout = time.Second
)

// finalizer finalizes jobs of one kind, many in one transaction.
type finalizer struct {
	kind     job.Kind
	finalize func(ctx context.Context, refs []job.Ref, wait sale.Wait) (sale.Report, error)
	retries  *semaphore.Weighted // half of the kind's slots, for tasks that try jobs again
	every    time.Duration       // a shard begins its batches of this kind so far apart, under load
}

// newFinalizer returns a finalizer of a kind that has so many slots: none would mean that a setting has no
// default, and that all tasks had one slot for retries.
func newFinalizer(kind job.Kind, finalize func(ctx context.Context, refs []job.Ref, wait sale.Wait) (sale.Report, error), slots int) *finalizer {
	if slots < 1 {
		panic("worker: a finalizer without slots")
	}
	return &finalizer{kind: kind, finalize: finalize, retries: semaphore.NewWeighted(int64(max(slots/2, 1)))}
}

// finalizePurchases finalizes purchase jobs.
func (w *Worker) finalizePurchases(ctx context.Context, jobs []job.Ref, again bool) error {
	return w.finalizeInBatches(ctx, w.purchases, jobs, again)
}

// finalizeCancellations finalizes cancellation jobs.
func (w *Worker) finalizeCancellations(ctx context.Context, jobs []job.Ref, again bool) error {
	return w.finalizeInBatches(ctx, w.cancellations, jobs, again)
}

// errLocked is the error of a task that has ended with jobs whose campaign or wallet stays locked.
var errLocked = queue.Later(errors.New("wallets or campaigns of these jobs are locked by another transaction"))

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
		if it.verdict == busy {
			err.jobs = append(err.jobs, it.ID)
		}
	}
	return err
}

// errTransient is the error of a task whose jobs could not be tried for now.
var errTransient = errors.New("the database is away, or too busy")

// finalizeInBatches finalizes jobs through the shards. Jobs with locked rows are tried again for
// about a second, while half of the slots are left for other tasks; those of a campaign that has just stayed
// locked are not.
func (w *Worker) finalizeInBatches(ctx context.Context, s *finalizer, jobs []job.Ref, again bool) error {
	if again {
		return w.finalizeRedelivered(ctx, s, jobs)
	}
	items := make([]*item, len(jobs))
	for i, ref := range jobs {
		items[i] = &item{Ref: ref}
	}
	left, err := w.pass(ctx, s, items)
	if err != nil || len(left) == 0 {
		return err
	}
	retried, known := w.locked.others(left)
	most := quickRetries
	if len(retried) > 0 && s.retries.TryAcquire(1) {
		defer s.retries.Release(1)
		most = mostRetries
	}
	for pause := retryPause; len(retried) > 0; pause = min(2*pause, longestPause) {
		if retried[0].retries == most {
			if most == mostRetries {
				w.locked.note(retried)
			}
			return stayLocked(append(known, retried...))
		}
		if err := w.pause(ctx, pause/2+rand.N(pause)); err != nil { //nolint:gosec // a jitter is no secret
			return err
		}
		for _, it := range retried {
			it.retries++
		}
		if retried, err = w.pass(ctx, s, retried); err != nil {
			return err
		}
	}
	if len(known) > 0 {
		return stayLocked(known)
	}
	return nil
}

// pass sends items through their shards, again after a transient fault. It returns those whose rows
// are locked. When jobs fail for another reason it returns an error, after the others were tried, too.
func (w *Worker) pass(ctx context.Context, s *finalizer, items []*item) (left []*item, err error) {
	delays := newBackoff()
	for {
		left, transient, err := w.passOnce(ctx, s, items)
		if err != nil || !transient {
			return left, err
		}
		if s.kind == job.KindPayment { // it becomes due by itself: no slot waits for the database
			return nil, queue.Later(errTransient)
		}
		if err := w.pause(ctx, delays.NextBackOff()); err != nil {
			return nil, err
		}
		items = left
	}
}

func (w *Worker) passOnce(ctx context.Context, s *finalizer, items []*item) (left []*item, transient bool, err error) {
	byShard := make(map[*shard][]*item)
	for _, it := range items {
		l := w.shardOf(it.CampaignID)
		byShard[l] = append(byShard[l], it)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var broken int
	var first error
	for l, mine := range byShard {
		all.Go(func() {
			verdicts, errs := l.batches[s.kind].DoAll(ctx, mine)
			mu.Lock()
			defer mu.Unlock()
			for i, it := range mine {
				switch {
				case errs[i] == nil:
					if it.verdict = verdicts[i]; it.verdict != done {
						left = append(left, it)
					}
				case isTransient(errs[i]):
					left, transient = append(left, it), true
				default:
					broken++
					first = errs[i]
				}
			}
		})
	}
	all.Wait()
	if broken > 0 {
		return nil, false, failed(broken, first)
	}
	w.locked.forget(items)
	return left, transient, ctx.Err()
}

// run runs one transaction and the work that follows its commit.
func (w *Worker) run(ctx context.Context, s *finalizer, refs []job.Ref, wait sale.Wait) (sale.Report, error) {
	ctx, spans := tracing.Batch(ctx, string(s.kind), len(refs), job.Traces(refs))
	report, err := s.finalize(postgres.As(ctx, transactionsOf(string(s.kind))), refs, wait)
	tell(spans, report)
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
	w.dispatcher.Dispatch(outbox.Tasks(report.Messages)...)
	w.dispatchDue(payment.Items(report.Payments))
	w.dispatchDue(report.Refunds)
	w.afterCommit.finalized(report.Finalized)
	w.metrics.finalized(s.kind, report.Finalized)
	job.LogFinal(ctx, w.logger, report.Finalized)
	w.metrics.putOff.WithLabelValues(string(s.kind)).Add(float64(len(report.Busy)))
	w.metrics.positions.Add(float64(report.Sold))
	w.holds.Count(inventory.HoldsUsed, report.HoldsUsed)
	w.holds.Count(inventory.HoldsReclaimed, report.HoldsReclaimed)
	return report, nil
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
		return queue.Later(ctx.Err())
	case <-w.draining.Done():
		return queue.Later(errDraining)
	}
}
