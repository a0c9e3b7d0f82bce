package worker

import (
	"context"
	"time"

	"golang.org/x/sync/semaphore"

	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/platform/tracing"
	"triprize/internal/service/sale"
	"triprize/internal/store/inventory"
	"triprize/internal/store/job"
	"triprize/internal/store/outbox"
	"triprize/internal/store/payment"
)

// finalizer finalizes jobs of one kind, many in one transaction.
type finalizer struct {
	kind     job.Kind
	finalize func(ctx context.Context, refs []job.Ref, wait sale.Wait) (sale.Report, error)
	kept     *semaphore.Weighted // slots that tasks may keep while their jobs are locked
	every    time.Duration       // a shard begins its batches of this kind so far apart, under load
	due      bool                // its jobs come back by themselves: none of their tasks waits for long
}

// newFinalizer returns a finalizer. kept is how many tasks may keep their slots while their jobs
// are locked.
func newFinalizer(kind job.Kind, finalize func(ctx context.Context, refs []job.Ref, wait sale.Wait) (sale.Report, error), kept int) *finalizer {
	return &finalizer{kind: kind, finalize: finalize, kept: semaphore.NewWeighted(int64(kept)), due: kept == 0}
}

// finalizePurchases finalizes purchase jobs.
func (w *Worker) finalizePurchases(ctx context.Context, jobs []job.Ref, again bool) error {
	return w.finalizeInBatches(ctx, w.purchases, jobs, again)
}

// finalizeCancellations finalizes cancellation jobs.
func (w *Worker) finalizeCancellations(ctx context.Context, jobs []job.Ref, again bool) error {
	return w.finalizeInBatches(ctx, w.cancellations, jobs, again)
}

// finalizeInBatches finalizes jobs through the shards. When it returns errParked, those that
// are not final wait for locked rows (locked.go). A task whose jobs are locked keeps its slot
// only while enough of these are left for other tasks.
func (w *Worker) finalizeInBatches(ctx context.Context, s *finalizer, jobs []job.Ref, again bool) error {
	jobs, parked := w.splitParked(jobs)
	if again {
		if err := w.finalizeRedelivered(ctx, s, jobs); err != nil || !parked {
			return err
		}
		return errParked
	}
	items := make([]*item, len(jobs))
	for i, ref := range jobs {
		items[i] = &item{Ref: ref}
	}
	slot := &keptSlot{slots: s.kept}
	defer slot.release()
	delays := newBackoff()
	for len(items) > 0 {
		ready, backedOff := splitReady(items, time.Now())
		if len(ready) == 0 {
			if lockedForLong(backedOff) && !slot.keep() {
				return errParked
			}
			if err := w.pause(ctx, time.Until(backedOff[0].notBefore)); err != nil {
				return err
			}
			continue
		}
		left, transient, err := w.pass(ctx, s, ready)
		if err != nil {
			return err
		}
		if transient && s.due {
			return queue.Later(errBusy)
		}
		var backoff time.Duration
		if transient {
			backoff = delays.NextBackOff()
		}
		now := time.Now()
		for _, it := range left {
			it.backOff(now, backoff)
		}
		waiting := len(left) + len(backedOff)
		items = w.dropParked(append(left, backedOff...))
		parked = parked || len(items) < waiting
	}
	if parked {
		return errParked
	}
	return nil
}

// pass sends items through their shards once. It returns those that are not final,
// and whether there was a transient fault. When jobs fail for another reason it
// returns an error, after the other items were tried too.
func (w *Worker) pass(ctx context.Context, s *finalizer, items []*item) (left []*item, transient bool, err error) {
	byShard := make(map[*shard][]*item)
	for _, it := range items {
		l := w.shardOf(it.CampaignID)
		byShard[l] = append(byShard[l], it)
	}
	type answer struct {
		items    []*item
		verdicts []verdict
		errs     []error
	}
	answers := make(chan answer, len(byShard))
	for l, mine := range byShard {
		go func() {
			verdicts, errs := l.batches[s.kind].DoAll(ctx, mine)
			answers <- answer{mine, verdicts, errs}
		}()
	}
	var broken int
	var first error
	for range byShard {
		a := <-answers
		for i, it := range a.items {
			switch {
			case a.errs[i] == nil && a.verdicts[i] == done:
			case a.errs[i] == nil:
				left = append(left, it)
			case isTransient(a.errs[i]):
				left, transient = append(left, it), true
			default:
				broken++
				first = a.errs[i]
			}
		}
	}
	if broken > 0 {
		return nil, false, failed(broken, first)
	}
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
