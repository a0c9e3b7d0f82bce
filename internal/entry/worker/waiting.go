package worker

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/google/uuid"

	"triprize/internal/platform/queue"
	"triprize/internal/service/sale"
)

// How long batches wait for locked rows. Another transaction may have locked the
// campaign of a job, or the wallet that pays for it or gets its money back. The batch
// then puts the job off. How often that has happened decides how the job is tried next:
//
//	times put off        tried together with                     the transaction waits for
//	any                  all jobs, if of several campaigns       nothing; jobs with locked rows are put off
//	                     all jobs, if of one campaign            the campaign
//	turnAfter or more    then, such jobs of its campaign         the campaign
//	walletAfter or more  then, such jobs of its campaign         the campaign and the wallets
//
// A transaction that waits keeps the shard from all others, so every wait is short, a batch waits
// twice at most, and after a wait in vain the shard does not wait for a while (after one
// for a wallet, not for wallets): first, the jobs are finalized that find their rows free. So a row that is locked for long delays others by
// mostWaits × lockWait once in a while, and its own jobs until it is free and as long as
// their backoff lasts. A campaign cannot sell while a batch waits for a wallet; that comes last.
const (
	// turnAfter is how often a job is put off before a transaction waits for its campaign.
	turnAfter = 5
	// walletAfter is how often a job is put off before a transaction waits for its wallet.
	walletAfter = 2 * turnAfter

	// lockWait is how long a transaction waits for a campaign.
	lockWait = 100 * time.Millisecond
	// walletWait is how long a transaction that has locked a campaign waits for a wallet.
	walletWait = 50 * time.Millisecond
	// mostWaits is how many transactions of a batch may wait.
	mostWaits = 2
	// waitPause is how long a shard does not wait after a wait in vain. It is several
	// times what a batch may wait, so a shard spends most of its time on jobs.
	waitPause = 10 * lockWait

	// busyDelay is the shortest pause after a job was put off; it is 1.5 times that on
	// average, about as long as a batch of another worker takes. From walletAfter on it
	// doubles every time, up to longestDelay.
	busyDelay    = 2 * time.Millisecond
	longestDelay = 256 * time.Millisecond

	// batchTimeout bounds one batch; the statements in it have their own limits.
	batchTimeout = 30 * time.Second
	// shardPending is how many jobs may wait for a batch of a shard.
	shardPending = 1 << 16
	// shardDrain is how long a batch may go on at shutdown after the last task was
	// given back. If it is cut off, its jobs are still in the outbox.
	shardDrain = time.Second

	// redisTimeout bounds each optional call to Redis.
	redisTimeout = time.Second
)

var (
	waitForCampaign = sale.WaitForCampaign.AtMost(lockWait)
	waitForWallets  = sale.WaitForWallets(walletWait).AtMost(lockWait)
)

// waits counts how many transactions of a batch, or of a delivery, may still wait.
type waits struct{ left int }

func (w *waits) take() bool {
	if w.left == 0 {
		return false
	}
	w.left--
	return true
}

// forCampaigns says how the first transaction of a batch waits: only when there is one
// campaign, as jobs of several would wait for the slowest.
func (w *waits) forCampaigns(items []*item) sale.Wait {
	for _, it := range items {
		if it.CampaignID != items[0].CampaignID {
			return sale.SkipLocked
		}
	}
	if !w.take() {
		return sale.SkipLocked
	}
	return waitForCampaign
}

// turns returns those of the jobs left that are to be waited for, by campaign, in a
// random order: so each campaign gets its turn, though a batch waits for few.
func turns(items []*item, left map[uuid.UUID]verdict) map[uuid.UUID][]*item {
	jobs := make(map[uuid.UUID][]*item)
	for _, it := range items {
		if left[it.ID] != done && it.putOff >= turnAfter {
			jobs[it.CampaignID] = append(jobs[it.CampaignID], it)
		}
	}
	return jobs
}

// overdue returns those of the jobs left whose wallets are to be waited for.
func overdue(items []*item, left map[uuid.UUID]verdict) (jobs []*item) {
	for _, it := range items {
		if left[it.ID] != done && it.putOff >= walletAfter {
			jobs = append(jobs, it)
		}
	}
	return jobs
}

// backOff sets when a job that is not finalized may be tried again: after a short pause
// when a batch has put it off, or after backoff when there was a transient fault.
func (it *item) backOff(now time.Time, backoff time.Duration) {
	d := backoff
	if d == 0 {
		d = min(busyDelay<<min(max(it.putOff-walletAfter, 0), 10), longestDelay)
		d += rand.N(d) //nolint:gosec // a jitter is no secret
	}
	it.notBefore = now.Add(d)
}

// splitReady splits items into those that may be tried now and those that may not yet, the
// earliest first.
func splitReady(items []*item, now time.Time) (ready, backedOff []*item) {
	for _, it := range items {
		if it.notBefore.After(now) {
			backedOff = append(backedOff, it)
		} else {
			ready = append(ready, it)
		}
	}
	slices.SortFunc(backedOff, func(a, b *item) int { return a.notBefore.Compare(b.notBefore) })
	return ready, backedOff
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
