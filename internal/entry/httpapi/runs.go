package httpapi

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/semaphore"

	"triprize/internal/domain/fault"
	"triprize/internal/entry/httpapi/response"
	"triprize/internal/platform/failpoint"
	"triprize/internal/store/inventory"
	"triprize/internal/store/job"
)

const (
	// refusedFor is how long a refusal for want of a free run is remembered.
	refusedFor = time.Second
	// mostRefused is in how many pools, and mostFollowed how many purchases are followed to their end at once,
	// for followedFor at most.
	mostRefused  = 4096
	mostFollowed = 64
	followedFor  = 5 * time.Second
)

// noRuns remembers which requests for positions side by side were refused, because no free run was as long: a
// search in vain reads every free position under the lock of the campaign. Each process remembers what its own
// requests have met.
type noRuns struct {
	mu        sync.Mutex // makes a look and the write after it one step
	known     *lru.Cache[inventory.Pool, noRun]
	followers *semaphore.Weighted
	following sync.WaitGroup
	now       func() time.Time // tests set it
}

// noRun is what is known of a pool.
type noRun struct {
	least int // the smallest quantity that was refused
	until time.Time
}

func newNoRuns() *noRuns {
	known, _ := lru.New[inventory.Pool, noRun](mostRefused) // fails only for a size of 0
	return &noRuns{known: known, followers: semaphore.NewWeighted(mostFollowed), now: time.Now}
}

// learn notes how a request has ended; a refusal that is of its user alone is not noted.
func (n *noRuns) learn(campaignID uuid.UUID, sel inventory.Selection, end *job.Problem) {
	if !sel.Adjacent || end == nil || !end.ForAll {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	pool, now := inventory.Pool{CampaignID: campaignID, Layer: sel.Layer}, n.now()
	if last, ok := n.known.Get(pool); !ok || sel.Quantity <= last.least || !now.Before(last.until) {
		n.known.Add(pool, noRun{least: sel.Quantity, until: now.Add(refusedFor)})
	}
}

// refusal returns why a request is refused without a look at the positions, or nil. What is not there in the
// whole campaign is in no layer of it.
func (n *noRuns) refusal(campaignID uuid.UUID, sel inventory.Selection) error {
	if !sel.Adjacent {
		return nil
	}
	for _, layer := range []int{0, sel.Layer} {
		if last, ok := n.known.Get(inventory.Pool{CampaignID: campaignID, Layer: layer}); ok && sel.Quantity >= last.least && n.isFresh(campaignID, last) {
			return fault.New(fault.NoneAvailable, "asked for %d side by side, and less than a second ago no free run was long enough for %d; held and reserved positions may become free again",
				sel.Quantity, last.least)
		}
	}
	return nil
}

func (n *noRuns) isFresh(campaignID uuid.UUID, last noRun) bool {
	return n.now().Before(last.until) || failpoint.Off("httpapi.runs.second", func() []string { return []string{campaignID.String()} })
}

// learnRun learns how a purchase ends, whether or not its client has waited for it.
func (s *Server) learnRun(answer response.Job, campaignID uuid.UUID, sel inventory.Selection) {
	if answer.Status != http.StatusAccepted {
		s.noRuns.learn(campaignID, sel, answer.Problem)
		return
	}
	if !sel.Adjacent || s.draining.Err() != nil || !s.noRuns.followers.TryAcquire(1) {
		return
	}
	s.noRuns.following.Go(func() {
		defer s.noRuns.followers.Release(1)
		ctx, cancel := context.WithTimeout(s.draining, followedFor)
		defer cancel()
		waiter := s.jobs.Waiter(answer.ID)
		defer waiter.Stop()
		j, err := job.Get(ctx, s.db, answer.ID)
		for err == nil && j.State == job.Queued {
			select {
			case j = <-waiter.Changes():
			case <-ctx.Done():
				return
			}
		}
		if err == nil {
			s.noRuns.learn(campaignID, sel, j.Problem)
		}
	})
}
