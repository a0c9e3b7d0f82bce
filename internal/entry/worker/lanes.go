package worker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"

	"triprize/internal/platform/batch"
	"triprize/internal/platform/postgres"
	"triprize/internal/service/sale"
	"triprize/internal/store/hold"
	"triprize/internal/store/job"
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
	passedOver int // batches that found its campaign or its wallet locked by somebody else
	restsUntil time.Time
}

// verdict is what a batch says of one job.
type verdict int

const (
	done verdict = iota // final, by this batch or before
	busy                // its campaign or its wallet is locked by somebody else
)

const (
	laneWaits = 1 << 16
	// patience is how many batches pass a job over before its campaign's jobs wait
	// their turn, and how many more before it waits for its wallet.
	patience = 5
	// waitedFor is how many campaigns a batch waits for the wallets of.
	waitedFor = 2
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
// a single campaign, and those that were passed over too often, wait their turn;
// and those whose wallet is still somebody else's then wait for that too, apart
// from all others.
func (l *lane) flush(ctx context.Context, items []*item) ([]verdict, error) {
	crowd, turns, overdue := queueUp(items)
	l.worker.crowd.RLock()
	defer l.worker.crowd.RUnlock()
	l.turn.Lock()
	defer l.turn.Unlock()
	passed := make(map[uuid.UUID]bool)
	sell := func(refs []job.Ref, by how) error {
		put, err := l.worker.sold(by(ctx, refs))
		for _, ref := range put {
			passed[ref.ID] = true
		}
		return err
	}
	if len(crowd) > 0 {
		if err := sell(crowd, func(ctx context.Context, refs []job.Ref) (sale.Report, error) {
			return l.worker.seller.Sell(ctx, refs, false)
		}); err != nil {
			return nil, err
		}
	}
	waits := func(ctx context.Context, refs []job.Ref) (sale.Report, error) {
		return l.worker.seller.Sell(ctx, refs, true)
	}
	for _, refs := range turns {
		if err := sell(refs, waits); err != nil {
			return nil, err
		}
	}
	if err := l.sellOverdue(overdue, sell, waits, passed); err != nil {
		return nil, err
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

// sellOverdue sells what was passed over too often: at once those whose wallet is
// free by now, then the others, waiting for their wallets. Only so many campaigns
// are waited for in one batch; the rest is passed over once more.
func (l *lane) sellOverdue(overdue map[uuid.UUID][]job.Ref, sell func([]job.Ref, how) error, waits how, passed map[uuid.UUID]bool) error {
	waited := 0
	for _, refs := range overdue {
		if waited == waitedFor {
			for _, ref := range refs {
				passed[ref.ID] = true
			}
			continue
		}
		if err := sell(refs, waits); err != nil {
			return err
		}
		var left []job.Ref
		for _, ref := range refs {
			if passed[ref.ID] {
				left = append(left, ref)
				delete(passed, ref.ID)
			}
		}
		if len(left) == 0 {
			continue
		}
		waited++
		if err := sell(left, l.worker.seller.SellOverdue); err != nil {
			return err
		}
	}
	return nil
}

// how is one way to sell jobs.
type how = func(context.Context, []job.Ref) (sale.Report, error)

// queueUp tells the jobs that are sold in one crowd, whatever their campaign,
// from those of which each campaign waits its turn alone, and those that wait for
// a wallet as well.
func queueUp(items []*item) (crowd []job.Ref, turns, overdue map[uuid.UUID][]job.Ref) {
	turns, overdue = make(map[uuid.UUID][]job.Ref), make(map[uuid.UUID][]job.Ref)
	campaigns := make(map[uuid.UUID]bool)
	for _, it := range items {
		switch {
		case it.passedOver < patience:
			crowd = append(crowd, it.Ref)
			campaigns[it.CampaignID] = true
		case it.passedOver < 2*patience:
			turns[it.CampaignID] = append(turns[it.CampaignID], it.Ref)
		default:
			overdue[it.CampaignID] = append(overdue[it.CampaignID], it.Ref)
		}
	}
	if len(campaigns) == 1 {
		only := crowd[0].CampaignID
		turns[only] = append(turns[only], crowd...)
		crowd = nil
	}
	return crowd, turns, overdue
}

// sold sees to what follows a transaction of sales. It returns the jobs that were
// passed over.
func (w *Worker) sold(report sale.Report, err error) ([]job.Ref, error) {
	if err != nil {
		if postgres.IsSurroundings(err) {
			w.metrics.faults.Inc()
		}
		return nil, err
	}
	for _, err := range report.Broken {
		w.logger.Error("a wallet is broken: its purchase failed", "error", err)
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
