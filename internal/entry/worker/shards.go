package worker

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/job"
	"triprize/internal/platform/batch"
	"triprize/internal/platform/postgres"
	"triprize/internal/sale"
)

const (
	// batchTimeout bounds one batch; the statements in it have their own limits.
	batchTimeout = 30 * time.Second
	// shardPending bounds the jobs that wait for a batch of a shard.
	shardPending = 1 << 16
	// shardDrain is how long a batch may run at shutdown after the last task was released. If it is
	// canceled, its jobs are still in the outbox.
	shardDrain = time.Second
)

// A transaction that waits for a locked row blocks its shard. So every wait is short, and a batch waits at
// most maxWaits times. After a wait that timed out there is none for waitPause, doubled after each further
// timeout up to maxWaitPause, because many campaigns may be locked at once.
const (
	lockWait    = 100 * time.Millisecond // for a campaign
	walletWait  = 50 * time.Millisecond  // for a wallet, with its campaign locked
	walletRetry = 5                      // from this retry on jobs wait for their wallets
	maxWaits    = 2

	waitPause    = time.Second
	maxWaitPause = 8 * time.Second
)

// shard merges the jobs of many tasks into batches, one at a time. The kinds alternate: a flood of one
// delays a batch of another by one batch.
type shard struct {
	worker  *Worker
	batches map[job.Kind]*batch.Coalescer[*item, verdict]

	running            sync.Mutex  // held by the running batch; locked after Worker.exclusive
	campaigns, wallets waitBackoff // guarded by running
}

// waitBackoff decides whether transactions may wait for locked rows.
type waitBackoff struct {
	notBefore time.Time
	pause     time.Duration // after the last wait, if it timed out
	least     time.Duration // of a pause; only tests set it
}

func (p *waitBackoff) allowed() bool { return !time.Now().Before(p.notBefore) }

// record records a wait.
func (p *waitBackoff) record(timedOut bool) {
	if !timedOut {
		p.pause = 0
		return
	}
	p.pause = max(min(max(2*p.pause, waitPause), maxWaitPause), p.least)
	p.notBefore = time.Now().Add(p.pause)
}

// item is one job on its way through a shard.
type item struct {
	job.Ref
	retries int     // because of a locked row
	verdict verdict // of the last batch
}

// verdict is the result of a batch for one job.
type verdict int

const (
	done           verdict = iota // final, by this batch or before
	walletLocked                  // by another transaction
	campaignLocked                // by another transaction
)

// add lets the shard finalize jobs of another kind. Call it before the first job.
func (l *shard) add(s *finalizer) {
	w := l.worker
	size, duration := w.metrics.batchSize.WithLabelValues(string(s.kind)), w.metrics.batchTime.WithLabelValues(string(s.kind))
	l.batches[s.kind] = batch.New(batch.Options{
		Size: job.MaxJobs, Linger: cmp.Or(w.settings.BatchLinger, time.Millisecond), MinInterval: s.minInterval, InFlight: 1, Pending: shardPending,
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

// shardOf returns the shard of a campaign.
func (w *Worker) shardOf(campaignID uuid.UUID) *shard {
	return w.shards[uuidv7.Spread(campaignID, len(w.shards))]
}

// group identifies the jobs of a batch that share a transaction: all first tries, or the retries of one campaign.
type group struct {
	campaign uuid.UUID // zero: first tries
	wallets  bool      // wait for wallets
}

// flush finalizes a batch of jobs of one kind, first tries before retries.
func (l *shard) flush(ctx context.Context, s *finalizer, items []*item) ([]verdict, error) {
	l.worker.exclusive.RLock()
	defer l.worker.exclusive.RUnlock()
	l.running.Lock()
	defer l.running.Unlock()
	groups := make(map[group][]*item, 1)
	for _, it := range items {
		var g group
		if it.retries > 0 {
			g = group{it.CampaignID, it.verdict == walletLocked && it.retries >= walletRetry}
		}
		groups[g] = append(groups[g], it)
	}
	verdicts, waits := make(map[uuid.UUID]verdict), maxWaits
	if err := l.try(ctx, s, groups[group{}], false, &waits, verdicts); err != nil {
		return nil, err
	}
	delete(groups, group{})
	for g, jobs := range groups { // in random order, because a batch waits for few
		if err := l.try(ctx, s, jobs, g.wallets, &waits, verdicts); err != nil {
			return nil, err
		}
	}
	all := make([]verdict, len(items))
	for i, it := range items {
		all[i] = verdicts[it.ID]
	}
	return all, nil
}

// try finalizes jobs in one transaction and records those with locked rows. It waits for locked rows only
// if all jobs have the same campaign: otherwise all would wait for the slowest.
func (l *shard) try(ctx context.Context, s *finalizer, items []*item, wallets bool, waits *int, verdicts map[uuid.UUID]verdict) error {
	if len(items) == 0 {
		return nil
	}
	refs := make([]job.Ref, len(items))
	for i, it := range items {
		refs[i] = it.Ref
	}
	wait, backoff := sale.LockWait{Campaign: lockWait}, &l.campaigns
	if wallets {
		wait.Wallets, backoff = walletWait, &l.wallets
	}
	if *waits == 0 || !ofOneCampaign(refs) || !backoff.allowed() {
		wait = sale.SkipLocked
	} else {
		*waits--
	}
	report, err := s.run(ctx, refs, wait)
	if err != nil {
		return err
	}
	if wait != sale.SkipLocked {
		backoff.record(report.TimedOut)
	}
	for _, ref := range report.Busy {
		verdicts[ref.ID] = walletLocked
	}
	for _, ref := range report.Locked {
		verdicts[ref.ID] = campaignLocked
	}
	return nil
}

func ofOneCampaign(refs []job.Ref) bool {
	return !slices.ContainsFunc(refs, func(ref job.Ref) bool { return ref.CampaignID != refs[0].CampaignID })
}
