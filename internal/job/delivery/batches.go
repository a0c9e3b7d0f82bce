package delivery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/uuid"
	"golang.org/x/sync/semaphore"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/job"
	"triprize/internal/platform/batch"
	"triprize/internal/platform/postgres"
	"triprize/internal/platform/queue"
	"triprize/internal/platform/tracing"
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

	batchTimeout = 30 * time.Second // one batch; the statements in it have their own limits
	shardPending = 1 << 16          // jobs that wait for a batch of a shard
	shardDrain   = time.Second      // how long a batch may run at shutdown after the last task was released. If it is canceled, its jobs are still in the outbox.

	// A transaction that waits for a locked row blocks its shard. So every wait is short, a batch waits
	// maxWaits times at most, and after a wait that timed out none in the shard waits for waitPause: many
	// campaigns may be locked at once.
	campaignWait = 100 * time.Millisecond
	walletWait   = 50 * time.Millisecond // with the campaign locked
	walletRetry  = 5                     // from this retry on jobs wait for their wallets
	maxWaits     = 2
	waitPause    = time.Second
)

// Batcher completes jobs of one kind, many in one transaction.
type Batcher struct {
	processor *Processor
	kind      job.Kind
	do        job.Batch
	slots     int
	retries   *semaphore.Weighted // half of the slots, for tasks that retry jobs
}

// Batcher adds a kind, whose transactions are do's. There is at least minInterval between the starts of two
// batches in a shard.
func (p *Processor) Batcher(kind job.Kind, slots int, minInterval time.Duration, do job.Batch) *Batcher {
	b := &Batcher{processor: p, kind: kind, do: do, slots: slots, retries: semaphore.NewWeighted(int64(max(slots/2, 1)))}
	p.metrics.expect(kind)
	p.metrics.snoozed.WithLabelValues(string(kind))
	for _, l := range p.shards {
		l.add(b, minInterval)
	}
	return b
}

// Consumer returns the consumer of the kind's messages.
func (b *Batcher) Consumer() queue.Consumer {
	b.processor.metrics.expectMessages(b.kind)
	return queue.Consumer{Kind: string(b.kind), Concurrency: b.slots, Handle: b.processor.handle(postgres.Transaction(b.kind), b.jobs)}
}

// ErrLocked is the error of jobs whose campaign, wallet or payment stays locked.
var ErrLocked = queue.Snooze(errors.New("wallets or campaigns of these jobs are locked by another transaction"))

// blocked is ErrLocked with the jobs whose wallet is locked.
type blocked struct {
	error
	byWallets []uuid.UUID
}

// Unwrap returns ErrLocked.
func (e *blocked) Unwrap() error { return e.error }

// Do completes jobs that were not tried before.
func (b *Batcher) Do(ctx context.Context, jobs ...job.Ref) error { return b.jobs(ctx, jobs, false) }

// jobs completes jobs through the shards. Those with locked rows are retried: for about a second, in at most
// half of the slots.
func (b *Batcher) jobs(ctx context.Context, jobs []job.Ref, redelivered bool) error {
	if redelivered {
		return b.redelivered(ctx, jobs)
	}
	items := make([]*item, len(jobs))
	for i, ref := range jobs {
		items[i] = &item{Ref: ref}
	}
	items, err := b.submit(ctx, items)
	if err != nil || len(items) == 0 {
		return err
	}
	most := quickRetries
	if b.retries.TryAcquire(1) {
		defer b.retries.Release(1)
		most = maxRetries
	}
	for pause := retryPause; len(items) > 0; pause = min(2*pause, maxPause) {
		if items[0].retries == most {
			err := &blocked{error: ErrLocked}
			for _, it := range items {
				if it.verdict == walletLocked {
					err.byWallets = append(err.byWallets, it.ID)
				}
			}
			return err
		}
		if err := b.processor.pause(ctx, pause/2+rand.N(pause)); err != nil { //nolint:gosec // a jitter is no secret
			return err
		}
		for _, it := range items {
			it.retries++
		}
		if items, err = b.submit(ctx, items); err != nil {
			return err
		}
	}
	return nil
}

// submit sends items through their shards and retries after transient faults. It returns the items whose
// rows are locked. If jobs fail otherwise it returns an error, after it has tried all.
func (b *Batcher) submit(ctx context.Context, items []*item) (locked []*item, err error) {
	for delays := newBackoff(); ; {
		verdicts, errs := batch.DoAll(ctx, items, func(it *item) *batch.Coalescer[*item, verdict] {
			return b.processor.shardOf(it.CampaignID).batches[b.kind]
		})
		locked = nil
		var failed []error
		transient := false
		for i, it := range items {
			switch err := errs[i]; {
			case err == nil:
				if it.verdict = verdicts[i]; it.verdict != done {
					locked = append(locked, it)
				}
			case IsTransient(err):
				locked, transient = append(locked, it), true
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
			return locked, nil
		case b.kind == job.KindPayment: // it becomes due automatically, so no slot waits for the database
			return nil, queue.Snooze(errors.New("the database is down or overloaded"))
		}
		if err := b.processor.pause(ctx, delays.NextBackOff()); err != nil {
			return nil, err
		}
		items = locked
	}
}

// newBackoff returns the delays after transient faults: 1, 2, 4 … 30 s, each with jitter.
func newBackoff() *backoff.ExponentialBackOff {
	delay := backoff.NewExponentialBackOff()
	delay.InitialInterval, delay.Multiplier, delay.MaxInterval = time.Second, 2, 30*time.Second
	return delay
}

// run runs one transaction and the work after its commit.
func (b *Batcher) run(ctx context.Context, refs []job.Ref, wait job.LockWait) (job.BatchResult, error) {
	p := b.processor
	ctx, spans := tracing.Batch(ctx, string(b.kind), len(refs), job.Traces(refs))
	result, err := b.do(postgres.As(ctx, postgres.Transaction(b.kind)), refs, wait)
	if spans != nil {
		for i := range result.Outcomes {
			spans.Set(result.Outcomes[i].ID, tracing.Outcome, result.Outcomes[i].Code())
		}
		for _, ref := range result.Busy {
			spans.Set(ref.ID, tracing.Outcome, outcomeSnoozed)
		}
	}
	spans.End(err)
	if err != nil {
		if IsTransient(err) {
			p.metrics.faults.Inc()
		}
		return job.BatchResult{}, err
	}
	for _, err := range result.Broken {
		p.Logger.Error("a wallet is broken: its job failed", "kind", b.kind, "error", err.Error()) // as text, so that each wallet has its own line
	}
	if result.TimedOut {
		p.shardOf(refs[0].CampaignID).waits.timedOut()
	}
	p.Dispatch(result.Messages...)
	p.Due(result.Due)
	p.committed(ctx, b.kind, result.Outcomes)
	p.metrics.snoozed.WithLabelValues(string(b.kind)).Add(float64(len(result.Busy)))
	return result, nil
}

// lockWaits decides whether transactions may wait for locked rows.
type lockWaits struct {
	pause  time.Duration // waitPause; tests set it
	resume atomic.Pointer[time.Time]
}

func (w *lockWaits) allowed() bool {
	resume := w.resume.Load()
	return resume == nil || !time.Now().Before(*resume)
}

func (w *lockWaits) timedOut() {
	resume := time.Now().Add(w.pause)
	w.resume.Store(&resume)
}

// shard merges the jobs of many tasks into batches, one at a time. The kinds alternate: a flood of one
// delays a batch of another by one batch.
type shard struct {
	processor *Processor
	batches   map[job.Kind]*batch.Coalescer[*item, verdict]
	running   sync.Mutex // held by the running batch; locked after Processor.exclusive
	waits     lockWaits
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

// add lets the shard complete jobs of another kind.
func (l *shard) add(b *Batcher, minInterval time.Duration) {
	p := l.processor
	size, duration := p.metrics.batchSize.WithLabelValues(string(b.kind)), p.metrics.batchTime.WithLabelValues(string(b.kind))
	l.batches[b.kind] = batch.New(batch.Options{
		Size: job.MaxJobs, Linger: cmp.Or(p.settings.BatchLinger, time.Millisecond), MinInterval: minInterval, BusyInterval: job.BusyInterval, InFlight: 1, Pending: shardPending,
		Timeout: batchTimeout, Drain: shardDrain, Whole: postgres.IsTransient,
		Observe: func(items int, took time.Duration) {
			size.Observe(float64(items))
			duration.Observe(took.Seconds())
		},
	}, func(ctx context.Context, items []*item) ([]verdict, error) { return l.flush(ctx, b, items) })
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
func (p *Processor) shardOf(campaignID uuid.UUID) *shard {
	return p.shards[uuidv7.Spread(campaignID, len(p.shards))]
}

// group identifies the jobs of a batch that share a transaction: all first tries, or the retries of one campaign.
type group struct {
	campaign uuid.UUID // zero: first tries
	wallets  bool      // wait for wallets
}

// flush completes a batch of jobs of one kind, first tries before retries.
func (l *shard) flush(ctx context.Context, b *Batcher, items []*item) ([]verdict, error) {
	l.processor.exclusive.RLock()
	defer l.processor.exclusive.RUnlock()
	l.running.Lock()
	defer l.running.Unlock()
	groups := make(map[group][]job.Ref, 1)
	for _, it := range items {
		var g group
		if it.retries > 0 {
			g = group{it.CampaignID, it.verdict == walletLocked && it.retries >= walletRetry}
		}
		groups[g] = append(groups[g], it.Ref)
	}
	verdicts, waits := make(map[uuid.UUID]verdict), maxWaits
	if err := b.try(ctx, groups[group{}], false, &waits, verdicts); err != nil {
		return nil, err
	}
	delete(groups, group{})
	for g, jobs := range groups { // in random order, because a batch waits for few
		if err := b.try(ctx, jobs, g.wallets, &waits, verdicts); err != nil {
			return nil, err
		}
	}
	all := make([]verdict, len(items))
	for i, it := range items {
		all[i] = verdicts[it.ID]
	}
	return all, nil
}

// try completes jobs in one transaction and records those with locked rows. It waits for locked rows only
// if all jobs have the same campaign: otherwise all would wait for the slowest.
func (b *Batcher) try(ctx context.Context, refs []job.Ref, wallets bool, waits *int, verdicts map[uuid.UUID]verdict) error {
	if len(refs) == 0 {
		return nil
	}
	wait := job.SkipLocked
	if *waits > 0 && ofOneCampaign(refs) && b.processor.shardOf(refs[0].CampaignID).waits.allowed() {
		*waits--
		wait.Campaign = campaignWait
		if wallets {
			wait.Wallets = walletWait
		}
	}
	result, err := b.run(ctx, refs, wait)
	if err != nil {
		return err
	}
	for _, ref := range result.Busy {
		verdicts[ref.ID] = walletLocked
	}
	for _, ref := range result.Locked {
		verdicts[ref.ID] = campaignLocked
	}
	return nil
}

func ofOneCampaign(refs []job.Ref) bool {
	return !slices.ContainsFunc(refs, func(ref job.Ref) bool { return ref.CampaignID != refs[0].CampaignID })
}
