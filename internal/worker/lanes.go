package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"

	"triprize/internal/batch"
	"triprize/internal/hold"
	"triprize/internal/job"
	"triprize/internal/postgres"
)

// lane turns the purchase jobs of many tasks into batches, one at a time.
type lane struct {
	worker *Worker
	items  *batch.Coalescer[*item, verdict]
	turn   sync.Mutex // a batch's or a cancellation's; taken after the worker's crowd, if both are
}

// item is one job on its way through a lane.
type item struct {
	job.Ref
	passedOver int // batches that found its campaign locked by another worker
}

// verdict is what a batch says of one job.
type verdict int

const (
	done verdict = iota // final, by this batch or before
	busy                // its campaign is locked by another worker
)

const (
	laneWaits = 1 << 16
	// patience is how many batches pass a job over before its campaign's jobs wait
	// their turn.
	patience = 5
	// batchTimeout bounds one batch; the statements in it have their own limits.
	batchTimeout = 30 * time.Second
	// laneDrain is how long a batch may go on after the last task was given back:
	// its jobs are in the outbox.
	laneDrain = time.Second
)

func newLane(w *Worker) *lane {
	l := &lane{worker: w}
	l.items = batch.New(batch.Options{
		Size: w.settings.BatchSize, Linger: w.settings.BatchLinger, InFlight: 1, Pending: laneWaits,
		Timeout: batchTimeout, Drain: laneDrain, Whole: postgres.IsSurroundings,
		Observe: func(items int, took time.Duration) {
			w.metrics.batchSize.Observe(float64(items))
			w.metrics.batchTime.Observe(took.Seconds())
		},
	}, l.flush)
	return l
}

func (l *lane) close() { l.items.Close() }

// laneOf returns the lane of a campaign.
func (w *Worker) laneOf(campaignID uuid.UUID) *lane {
	return w.lanes[int(campaignID[15])%len(w.lanes)] // the last byte of a UUIDv7 is random
}

// flush settles a batch. The jobs of several campaigns are sold together, and
// those whose campaign another worker has are passed over: a transaction that
// waits for one campaign while it has others could wait in a circle. The jobs of
// a single campaign, and those that were passed over too often, wait their turn.
func (l *lane) flush(ctx context.Context, items []*item) ([]verdict, error) {
	crowd, turns := queueUp(items)
	l.worker.crowd.RLock()
	defer l.worker.crowd.RUnlock()
	l.turn.Lock()
	defer l.turn.Unlock()
	passed := make(map[uuid.UUID]bool)
	if len(crowd) > 0 {
		put, err := l.worker.sell(ctx, crowd, false)
		if err != nil {
			return nil, err
		}
		for _, ref := range put {
			passed[ref.ID] = true
		}
	}
	for _, refs := range turns {
		if _, err := l.worker.sell(ctx, refs, true); err != nil {
			return nil, err
		}
	}
	verdicts := make([]verdict, len(items))
	for i, it := range items {
		if passed[it.ID] {
			it.passedOver++
			verdicts[i] = busy
		}
	}
	return verdicts, nil
}

// queueUp tells the jobs that are sold in one crowd, whatever their campaign,
// from those of which each campaign waits its turn alone.
func queueUp(items []*item) (crowd []job.Ref, turns map[uuid.UUID][]job.Ref) {
	turns = make(map[uuid.UUID][]job.Ref)
	campaigns := make(map[uuid.UUID]bool)
	for _, it := range items {
		if it.passedOver < patience {
			crowd = append(crowd, it.Ref)
			campaigns[it.CampaignID] = true
		} else {
			turns[it.CampaignID] = append(turns[it.CampaignID], it.Ref)
		}
	}
	if len(campaigns) == 1 {
		only := crowd[0].CampaignID
		turns[only] = append(turns[only], crowd...)
		crowd = nil
	}
	return crowd, turns
}

// sell settles purchase jobs in one transaction and sees to what follows. It
// returns the jobs that were passed over.
func (w *Worker) sell(ctx context.Context, refs []job.Ref, wait bool) ([]job.Ref, error) {
	report, err := w.seller.Sell(ctx, refs, wait)
	if err != nil {
		if postgres.IsSurroundings(err) {
			w.metrics.faults.Inc()
		}
		return nil, err
	}
	w.ringer.Ring(report.Rings)
	w.aftermath.settled(report.Settled)
	w.metrics.settled(job.KindPurchase, report.Settled)
	w.metrics.positions.Add(float64(report.Sold))
	w.holds.Count(hold.EventUsed, report.HoldsUsed)
	w.holds.Count(hold.EventReclaimed, report.HoldsReclaimed)
	w.metrics.busy.Add(float64(len(report.Busy)))
	return report.Busy, nil
}

// waitsOut tells whether a lane's error concerns the moment, not the job.
func waitsOut(err error) bool {
	return postgres.IsSurroundings(err) || errors.Is(err, batch.ErrFull)
}
