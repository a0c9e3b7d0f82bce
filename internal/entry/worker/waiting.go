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

// Who waits for whom, and how long. The campaign of a purchase job, or the wallet
// that pays for it, may be locked by another worker. How often a batch has put the
// job off for that decides how it is tried next:
//
//	so often             with whom                        and waits for
//	fewer than turnAfter all jobs at hand, any campaign   nothing; what is locked is put off
//	                     all jobs at hand, one campaign   the campaign
//	… than walletAfter   those of its campaign            the campaign
//	walletAfter and more those of its campaign, apart     the campaign, and what is then left: the wallets
//
// A transaction with several campaigns waits for none: while it waited for one it
// would hold up those who want the others. A campaign stands still while a batch
// waits for a wallet, so that is the last resort, and short.
const (
	// turnAfter is how often a job is put off before its campaign's jobs take their turn.
	turnAfter = 5
	// walletAfter is how often a job is put off before its wallet is waited for.
	walletAfter = 2 * turnAfter

	// walletWait is how long a transaction that has a campaign waits for a wallet.
	walletWait = 250 * time.Millisecond
	// walletCampaigns is how many campaigns one batch waits for the wallets of; the
	// others are put off once more.
	walletCampaigns = 2

	// busyDelay is how long a job that was put off is left alone, on average 1.5 times:
	// about as long as a batch of another worker takes.
	busyDelay = 2 * time.Millisecond
	// walletDelay is how long a job that has waited for its wallet in vain leaves its
	// campaign to the others.
	walletDelay = time.Second

	// batchTimeout bounds one batch; the statements in it have their own limits.
	batchTimeout = 30 * time.Second
	// lanePending is how many jobs may wait for a batch of a lane.
	lanePending = 1 << 16
	// laneDrain is how long a batch may go on at shutdown after the last task was
	// given back: its jobs are in the outbox.
	laneDrain = time.Second

	// redisTimeout bounds each conversation with Redis that a worker can do without.
	redisTimeout = time.Second
)

// waitForWallets is the last resort of the table above.
var waitForWallets = sale.WaitForWallets(walletWait)

// attempt is a transaction, or several: each for the jobs that the one before has
// put off.
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

// rest lets a job that is not settled alone for a while: after a batch has put it
// off, or for backoff after a transient fault.
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

// awake tells the items that may be tried now from those that rest, of which the
// first to wake comes first.
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

// pause waits, or returns why there is no point in waiting.
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
