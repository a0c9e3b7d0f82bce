package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/batch"
	"triprize/internal/platform/postgres"
	"triprize/internal/service/sale"
	"triprize/internal/store/inventory"
	"triprize/internal/store/job"
)

// lane turns the purchase jobs of many tasks into batches, one at a time.
type lane struct {
	worker *Worker
	items  *batch.Coalescer[*item, verdict]
	turn   sync.Mutex // held by the batch or the cancellation that runs; taken after Worker.exclusive
}

// item is one job on its way through a lane.
type item struct {
	job.Ref
	putOff     int // how many batches found its campaign or its wallet locked
	restsUntil time.Time
}

// verdict is the result of a batch for one job.
type verdict int

const (
	done verdict = iota // final, by this batch or before
	busy                // its campaign or its wallet is locked by another transaction
)

func newLane(w *Worker) *lane {
	l := &lane{worker: w}
	l.items = batch.New(batch.Options{
		Size: w.settings.BatchSize, Linger: w.settings.BatchLinger, InFlight: 1, Pending: lanePending,
		Timeout: batchTimeout, Drain: laneDrain, Whole: postgres.IsTransient,
		Observe: func(items int, took time.Duration) {
			w.metrics.batchSize.Observe(float64(items))
			w.metrics.batchTime.Observe(took.Seconds())
		},
	}, l.flush)
	return l
}

func (l *lane) close() { l.items.Close() }

// laneOf returns the lane of a campaign, always the same one.
func (w *Worker) laneOf(campaignID uuid.UUID) *lane {
	return w.lanes[uuidv7.Spread(campaignID, len(w.lanes))]
}

// flush settles a batch of jobs.
func (l *lane) flush(ctx context.Context, items []*item) ([]verdict, error) {
	l.worker.exclusive.RLock()
	defer l.worker.exclusive.RUnlock()
	l.turn.Lock()
	defer l.turn.Unlock()
	putOff, waited := make(map[uuid.UUID]bool), 0
	for _, a := range attempts(items) {
		left := a.jobs
		for _, wait := range a.waits {
			if len(left) == 0 || len(a.waits) > 1 && waited == walletCampaigns {
				break
			}
			if wait == waitForWallets {
				waited++
			}
			var err error
			if left, err = l.worker.sell(ctx, left, wait); err != nil {
				return nil, err
			}
		}
		for _, ref := range left {
			putOff[ref.ID] = true
		}
	}
	verdicts := make([]verdict, len(items))
	for i, it := range items {
		if putOff[it.ID] {
			it.putOff++
			verdicts[i] = busy
		}
	}
	return verdicts, nil
}

// sell runs one transaction of sales and the work that follows its commit. It
// returns the jobs that were put off because of locked rows.
func (w *Worker) sell(ctx context.Context, refs []job.Ref, wait sale.Wait) (putOff []job.Ref, err error) {
	report, err := w.seller.Sell(ctx, refs, wait)
	if err != nil {
		if postgres.IsTransient(err) {
			w.metrics.faults.Inc()
		}
		return nil, err
	}
	for _, err := range report.Broken {
		w.logger.Error("a wallet is broken: its purchase failed", "error", err)
	}
	w.dispatcher.Dispatch(report.Messages)
	w.afterCommit.settled(report.Settled)
	w.metrics.settled(job.KindPurchase, report.Settled)
	w.metrics.positions.Add(float64(report.Sold))
	w.holds.Count(inventory.HoldsUsed, report.HoldsUsed)
	w.holds.Count(inventory.HoldsReclaimed, report.HoldsReclaimed)
	w.metrics.busy.Add(float64(len(report.Busy)))
	return report.Busy, nil
}

// isTransient tells whether an error is transient, and not the fault of a job.
func isTransient(err error) bool {
	return postgres.IsTransient(err) || errors.Is(err, batch.ErrFull)
}
