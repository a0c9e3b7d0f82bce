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
	"triprize/internal/store/job"
)

// How long batches wait for locked rows. Another transaction may have locked the
// campaign of a purchase job, or the wallet that pays for it. The batch then puts
// the job off. How often that has happened decides how the job is tried next:
//
//	times put off        tried together with                     the transaction waits for
//	below turnAfter      all such jobs, if of several campaigns  nothing; jobs with locked rows are put off
//	                     all such jobs, if of one campaign       the campaign
//	below walletAfter    the jobs of its campaign                the campaign
//	walletAfter or more  such jobs of its campaign               the campaign; a second one, for the jobs
//	                                                             put off by the first: the wallets too
//
// A transaction with several campaigns does not wait: while it waited for one, it
// would block the sales of the others. A campaign cannot sell while a batch waits
// for a wallet, so that comes last, and only for a short time.
const (
	// turnAfter is how often a job is put off before a transaction waits for its campaign.
	turnAfter = 5
	// walletAfter is how often a job is put off before a transaction waits for its wallet.
	walletAfter = 2 * turnAfter

	// walletWait is how long a transaction that has locked a campaign waits for a wallet.
	walletWait = 250 * time.Millisecond
	// walletCampaigns is for how many campaigns one batch waits for wallets; the jobs
	// of others are put off once more.
	walletCampaigns = 2

	// busyDelay is the shortest pause after a job was put off; it is 1.5 times that on
	// average, about as long as a batch of another worker takes.
	busyDelay = 2 * time.Millisecond
	// walletDelay is the pause after a job has waited for its wallet without success.
	// Meanwhile its campaign can sell to others.
	walletDelay = time.Second

	// batchTimeout bounds one batch; the statements in it have their own limits.
	batchTimeout = 30 * time.Second
	// lanePending is how many jobs may wait for a batch of a lane.
	lanePending = 1 << 16
	// laneDrain is how long a batch may go on at shutdown after the last task was
	// given back. If it is cut off, its jobs are still in the outbox.
	laneDrain = time.Second

	// redisTimeout bounds each optional call to Redis.
	redisTimeout = time.Second
)

// waitForWallets waits for campaign and wallets: the last row of the table above.
var waitForWallets = sale.WaitForWallets(walletWait)

// attempt is one transaction for jobs, or several: each next one is for the jobs
// that the one before has put off.
type attempt struct {
	jobs  []job.Ref
	waits []sale.Wait
}

// attempts says how the jobs of a batch are tried, by the table above.
func attempts(items []*item) (plan []attempt) {
	var together []job.Ref
	turns, overdue := make(map[uuid.UUID][]job.Ref), make(map[uuid.UUID][]job.Ref)
	campaigns := make(map[uuid.UUID]bool)
	for _, it := range items {
		switch {
		case it.putOff < turnAfter:
			together = append(together, it.Ref)
			campaigns[it.CampaignID] = true
		case it.putOff < walletAfter:
			turns[it.CampaignID] = append(turns[it.CampaignID], it.Ref)
		default:
			overdue[it.CampaignID] = append(overdue[it.CampaignID], it.Ref)
		}
	}
	switch len(campaigns) {
	case 0:
	case 1:
		only := together[0].CampaignID
		turns[only] = append(turns[only], together...)
	default:
		plan = append(plan, attempt{together, []sale.Wait{sale.SkipLocked}})
	}
	for _, jobs := range turns {
		plan = append(plan, attempt{jobs, []sale.Wait{sale.WaitForCampaign}})
	}
	for _, jobs := range overdue {
		plan = append(plan, attempt{jobs, []sale.Wait{sale.WaitForCampaign, waitForWallets}})
	}
	return plan
}

// rest sets when a job that is not settled may be tried again: after a short pause
// when a batch has put it off, or after backoff when there was a transient fault.
func (it *item) rest(now time.Time, backoff time.Duration) {
	d := backoff
	if d == 0 {
		d = busyDelay + rand.N(busyDelay) //nolint:gosec // a jitter is no secret
	}
	if it.putOff > walletAfter {
		d = max(d, walletDelay)
	}
	it.restsUntil = now.Add(d)
}

// awake splits items into those that may be tried now and those that rest, the
// earliest first.
func awake(items []*item, now time.Time) (ready, resting []*item) {
	for _, it := range items {
		if it.restsUntil.After(now) {
			resting = append(resting, it)
		} else {
			ready = append(ready, it)
		}
	}
	slices.SortFunc(resting, func(a, b *item) int { return a.restsUntil.Compare(b.restsUntil) })
	return ready, resting
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
	case <-w.draining:
		return queue.Later(errDraining)
	}
}
