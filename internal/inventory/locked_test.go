package inventory_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"triprize/internal/platform/config"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// One process has requests of every kind for more locked campaigns than it has
// flushes, and those that it tries again wait for ever. The free campaign does not
// wait for them; and when they are unlocked, all of them are served.
func TestCampaignsThatStayLockedDelayNoOther(t *testing.T) {
	t.Parallel()
	settings := servers.Patient(servers.Settings(t))
	db, elsewhere := servers.Pool(t, settings), servers.Pool(t, settings)
	service := fixture.Holds(t, db, nil, nil)
	free := fixture.Campaign(t, db, fixture.Draft(4))
	var stuck sync.WaitGroup
	var unlock []func()
	for range 8 {
		id := fixture.Campaign(t, db, fixture.Draft(4))
		kept, gone := fixture.Hold(t, service, fixture.HoldRequest(id, "a", at(1, 1))), fixture.Hold(t, service, fixture.HoldRequest(id, "a", at(2, 1)))
		unlock = append(unlock, fixture.LockCampaign(t, elsewhere, id))
		stuck.Go(func() {
			if _, err := fixture.TryHold(t, service, fixture.HoldRequest(id, "b", at(3, 1))); err != nil {
				t.Errorf("hold: %v", err)
			}
		})
		stuck.Go(func() {
			if _, err := extendAt(t, service, kept.ID, time.Hour); err != nil {
				t.Errorf("extend: %v", err)
			}
		})
		stuck.Go(func() {
			if released, err := releaseAt(t, service, gone.ID); !released || err != nil {
				t.Errorf("release: %t, %v", released, err)
			}
		})
	}
	service.SetRowWait(time.Millisecond, servers.Patience)
	servers.AwaitBlocked(t, elsewhere, 2) // they are tried again
	for i := range 3 {
		user := fmt.Sprint("user-", i)
		made := fixture.Hold(t, service, fixture.HoldRequest(free, user, at(4, i+1)))
		if _, err := extendAt(t, service, made.ID, time.Hour); err != nil {
			t.Error(err)
		}
		if _, err := releaseAt(t, service, fixture.Hold(t, service, fixture.HoldRequest(free, user, at(3, i+1))).ID); err != nil {
			t.Error(err)
		}
	}
	for _, let := range unlock {
		let()
	}
	stuck.Wait()
	expectCounts(t, db, free, 3, 0)
	fixture.Sound(t, db)
}

// What cannot be done in time is refused, and was not done.
func TestACampaignThatStaysLockedFailsItsOwnRequestsOnly(t *testing.T) {
	t.Parallel()
	settings := servers.Patient(servers.Settings(t))
	db, elsewhere := servers.Pool(t, settings), servers.Pool(t, settings)
	free, stuck := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Campaign(t, db, fixture.Draft(4))
	service := fixture.Holds(t, db, nil, func(s *config.Holds) { s.Timeout = time.Second })
	defer fixture.LockCampaign(t, elsewhere, stuck)()
	waits := fixture.HoldRequest(stuck, "a", at(1, 1))
	for round, held := 1, false; !held; round++ { // once, unless the machine needs longer than the timeout for the free one, too
		if round > 4 {
			t.Fatal("a free campaign waits for a locked one")
		}
		refused := make(chan error, 1)
		go func() { _, err := fixture.TryHold(t, service, waits); refused <- err }()
		_, err := fixture.TryHold(t, service, fixture.HoldRequest(free, fmt.Sprint("user-", round), at(round, 1)))
		held = err == nil && len(refused) == 0 // while the other one waits
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		if err := <-refused; !postgres.IsLockTimeout(err) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	}
	if n := jobs(t, db, waits); n != 0 {
		t.Error("the refusal was recorded")
	}
	expectCounts(t, db, stuck, 0, 0)
}
