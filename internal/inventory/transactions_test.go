//go:build failpoint

package inventory_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"triprize/internal/domain/shape"
	"triprize/internal/inventory"
	"triprize/internal/platform/config"
	"triprize/internal/platform/failpoint"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// Requests that come while a transaction runs share the next one, each with its own
// outcome: two hundred releases and as many extensions take a few transactions.
func TestReleasesAndExtensionsShareTransactions(t *testing.T) {
	t.Parallel()
	const n = 200
	settings := servers.Patient(servers.Settings(t))
	db, elsewhere := servers.Pool(t, settings), servers.Pool(t, settings)
	id := fixture.Campaign(t, db, fixture.Draft(30))
	service := fixture.Holds(t, db, nil, func(s *config.Holds) { s.MaxPerUser, s.MaxPositionsPerUser = 2*n, 2*n })
	var kept []inventory.Hold
	for _, p := range free(t, db, id)[:2*n] {
		kept = append(kept, inventory.Hold{Positions: []shape.Item{{Place: fixture.OfTriangle(p)}}})
	}
	var making sync.WaitGroup
	for i := range kept {
		making.Go(func() { kept[i] = fixture.Hold(t, service, fixture.HoldRequest(id, "a", placesOf(kept[i])...)) })
	}
	making.Wait()

	service.SetRowWait(servers.Patience, servers.Patience)
	var commits atomic.Int32
	defer failpoint.Set("holds.commit", id.String(), func() { commits.Add(1) })()
	unlock := fixture.LockCampaign(t, elsewhere, id)
	var all sync.WaitGroup
	all.Go(func() { _, _ = fixture.TryHold(t, service, fixture.HoldRequest(id, "first", at(30, 30))) })
	servers.AwaitBlocked(t, elsewhere, 1)
	for i, h := range kept {
		all.Go(func() {
			if i%2 == 0 {
				if released, err := service.Release(t.Context(), id, h.ID); !released || err != nil {
					t.Errorf("release %d: %t, %v", i, released, err)
				}
				return
			}
			extended, err := extendAt(t, service, h.ID, time.Hour)
			if err != nil || extended.ID != h.ID || extended.Extensions != 1 {
				t.Errorf("extend %d: %+v, %v", i, extended, err)
			}
		})
	}
	servers.Eventually(t, "all wait for their transaction", func() bool { return service.Pending(id) == 2*n })
	unlock()
	all.Wait()
	if c := commits.Load(); c > 1+(2*n+127)/128 {
		t.Errorf("it took %d transactions", c)
	}
	expectCounts(t, db, id, n+1, 0)
	fixture.Sound(t, db)
}

// One batch has many requests about the same hold, retries among them.
func TestRequestsAboutOneHoldInOneTransactionAreDecidedInTheirOrder(t *testing.T) {
	t.Parallel()
	settings := servers.Patient(servers.Settings(t))
	db, elsewhere := servers.Pool(t, settings), servers.Pool(t, settings)
	id := fixture.Campaign(t, db, fixture.Draft(4))
	service := fixture.Holds(t, db, nil, func(s *config.Holds) { s.MaxExtensions = 2 })
	h := fixture.Hold(t, service, fixture.HoldRequest(id, "a", at(3, 1), at(3, 2)))
	service.SetRowWait(servers.Patience, servers.Patience)
	unlock := fixture.LockCampaign(t, elsewhere, id)
	var all sync.WaitGroup
	queue := func(do func()) {
		before := service.Pending(id)
		all.Go(do)
		servers.Eventually(t, "it waits for the transaction", func() bool { return service.Pending(id) > before })
	}
	all.Go(func() { _, _ = fixture.TryHold(t, service, fixture.HoldRequest(id, "first", at(1, 1))) })
	servers.AwaitBlocked(t, elsewhere, 1)
	again := extendRequest(t, service, h.ID)
	var first, retry string
	queue(func() {
		done, _ := service.Extend(t.Context(), inventory.HoldRequest{Job: again, TTL: 20 * time.Minute}, h.ID)
		first = string(done.Job.Result)
	})
	queue(func() {
		done, _ := service.Extend(t.Context(), inventory.HoldRequest{Job: again, TTL: 20 * time.Minute}, h.ID)
		retry = string(done.Job.Result)
	})
	queue(func() {
		if h, err := extendAt(t, service, h.ID, 30*time.Minute); err != nil || h.Extensions != 2 {
			t.Errorf("a second extension: %+v, %v", h, err)
		}
	})
	queue(func() {
		if _, err := extendAt(t, service, h.ID, time.Hour); true {
			expectCode(t, "a third extension", err, "hold-limit-exceeded")
		}
	})
	var released [2]bool
	for i := range released {
		queue(func() { released[i], _ = service.Release(t.Context(), id, h.ID) })
	}
	queue(func() {
		_, err := extendAt(t, service, h.ID, time.Hour)
		expectCode(t, "an extension after the release", err, "hold-expired")
	})
	queue(func() { // what is released in a transaction can be held in it
		if _, err := fixture.TryHold(t, service, fixture.HoldRequest(id, "b", at(3, 1))); err != nil {
			t.Error(err)
		}
	})
	unlock()
	all.Wait()
	if first == "" || first != retry {
		t.Errorf("the retry was answered with %s, the first request with %s", retry, first)
	}
	if now := fixture.HoldNow(t, db, h.ID); !released[0] || released[1] || now.State != inventory.HoldReleased || now.Extensions != 2 {
		t.Errorf("released: %v; it is %+v", released, now)
	}
	expectCounts(t, db, id, 2, 0)
	fixture.Sound(t, db)
}
