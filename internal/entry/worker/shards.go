package worker

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/batch"
	"triprize/internal/platform/postgres"
	"triprize/internal/service/sale"
	"triprize/internal/store/job"
	"triprize/internal/store/outbox"
)

// shard turns the jobs of many tasks into batches, one at a time. Kinds take turns: a
// flood of one delays a batch of another by one batch.
type shard struct {
	worker  *Worker
	batches map[job.Kind]*batch.Coalescer[*item, verdict]

	turn              sync.Mutex // held by the batch that runs; taken after Worker.exclusive
	noWaitUntil       time.Time  // under turn: before this moment no batch waits for rows
	noWalletWaitUntil time.Time  // and before this one none waits for wallets
}

// item is one job on its way through a shard.
type item struct {
	job.Ref
	putOff    int // how many batches found its campaign or its wallet locked
	locked    int // how many of the last ones in a row found its campaign locked
	notBefore time.Time
}

// verdict is the result of a batch for one job.
type verdict int

const (
	done   verdict = iota // final, by this batch or before
	busy                  // its wallet is locked by another transaction
	locked                // its campaign is
)

func newShard(w *Worker, finalizers ...*finalizer) *shard {
	l := &shard{worker: w, batches: make(map[job.Kind]*batch.Coalescer[*item, verdict], len(finalizers))}
	for _, s := range finalizers {
		l.add(s)
	}
	return l
}

// add lets the shard finalize jobs of another kind. It comes before the first job.
func (l *shard) add(s *finalizer) {
	w := l.worker
	size, duration := w.metrics.batchSize.WithLabelValues(string(s.kind)), w.metrics.batchTime.WithLabelValues(string(s.kind))
	l.batches[s.kind] = batch.New(batch.Options{
		Size: outbox.MaxJobs, Linger: cmp.Or(w.settings.BatchLinger, time.Millisecond), Every: s.every, InFlight: 1, Pending: shardPending,
		Timeout: batchTimeout, Drain: shardDrain, Whole: postgres.IsTransient,
		Observe: func(items int, took time.Duration) {
			size.Observe(float64(items))
			duration.Observe(took.Seconds())
		},
	}, func(ctx context.Context, items []*item) ([]verdict, error) { return l.flush(ctx, s, items) })
}

// close ends the batches of all kinds.
func (l *shard) close() {
	var all sync.WaitGroup
	for _, b := range l.batches {
		all.Go(b.Close)
	}
	all.Wait()
}

// shardOf returns the shard of a campaign, always the same one.
func (w *Worker) shardOf(campaignID uuid.UUID) *shard {
	return w.shards[uuidv7.Spread(campaignID, len(w.shards))]
}

// flush finalizes a batch of jobs of one kind.
func (l *shard) flush(ctx context.Context, s *finalizer, items []*item) ([]verdict, error) {
	l.worker.exclusive.RLock()
	defer l.worker.exclusive.RUnlock()
	l.turn.Lock()
	defer l.turn.Unlock()
	left, err := l.try(ctx, s, items)
	if err != nil {
		return nil, err
	}
	verdicts := make([]verdict, len(items))
	for i, it := range items {
		if verdicts[i] = left[it.ID]; verdicts[i] != done {
			it.putOff++
		}
		if it.locked++; verdicts[i] != locked {
			it.locked = 0
		}
	}
	return verdicts, nil
}

// try finalizes jobs as the table in waiting.go says, and returns those that are left:
// their rows are locked by other transactions.
func (l *shard) try(ctx context.Context, s *finalizer, items []*item) (left map[uuid.UUID]verdict, err error) {
	waits := &waits{left: mostWaits}
	if time.Now().Before(l.noWaitUntil) {
		waits.left = 0
	}
	left = make(map[uuid.UUID]verdict)
	run := func(items []*item, wait sale.Wait) (gaveUp bool, err error) {
		refs := make([]job.Ref, len(items))
		for i, it := range items {
			refs[i] = it.Ref
			delete(left, it.ID)
		}
		report, err := l.worker.run(ctx, s, refs, wait)
		for _, ref := range report.Busy {
			left[ref.ID] = busy
		}
		for _, ref := range report.Locked {
			left[ref.ID] = locked
		}
		switch {
		case report.GaveUp && wait == waitForWallets: // campaigns have nothing to do with it
			l.noWalletWaitUntil = time.Now().Add(waitPause)
		case report.GaveUp:
			l.noWaitUntil = time.Now().Add(waitPause)
		}
		return report.GaveUp, err
	}
	first := waits.forCampaigns(items)
	gaveUp, err := run(items, first)
	if err != nil || gaveUp {
		return left, err
	}
	for _, jobs := range turns(items, left) {
		if !first.Waits() && waits.take() {
			if gaveUp, err = run(jobs, waitForCampaign); err != nil {
				return nil, err
			}
		}
		if jobs = overdue(jobs, left); len(jobs) > 0 && !gaveUp && time.Now().After(l.noWalletWaitUntil) && waits.take() {
			if gaveUp, err = run(jobs, waitForWallets); err != nil {
				return nil, err
			}
		}
	}
	return left, nil
}

// isTransient tells whether an error is transient, and not the fault of a job.
func isTransient(err error) bool {
	return postgres.IsTransient(err) || errors.Is(err, batch.ErrFull)
}
