//go:build failpoint

package inventory_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"triprize/internal/domain/fault"
	"triprize/internal/inventory"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// One batch has many requests about the same hold, retries among them.
func TestRequestsAboutOneHoldInOneTransactionAreDecidedInTheirOrder(t *testing.T) {
	t.Parallel()
	settings := servers.Patient(servers.Settings(t))
	db, elsewhere := servers.Pool(t, settings), servers.Pool(t, settings)
	id := fixture.Campaign(t, db, fixture.Draft(4))
	service := fixture.Holds(t, db, nil, nil)
	h := fixture.Hold(t, service, fixture.HoldRequest(id, "a", at(3, 1), at(3, 2)))
	var commits atomic.Int32
	defer failpoint.Set("holds.commit", id.String(), func() { commits.Add(1) })()
	queue, letGo := queueing(t, elsewhere, service, id)
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
		if _, err := extendAt(t, service, h.ID, time.Hour); true {
			expectCode(t, "a second extension", err, "hold-limit-exceeded")
		}
	})
	var released [2]bool
	for i := range released {
		queue(func() { released[i], _ = service.Release(t.Context(), id, h.ID) })
	}
	queue(func() {
		_, err := extendAt(t, service, h.ID, time.Hour)
		if expectCode(t, "an extension after the release", err, "hold-expired"); !strings.Contains(fmt.Sprint(err), "was released") {
			t.Error(err)
		}
	})
	queue(func() { // what is released in a transaction can be held in it
		if _, err := fixture.TryHold(t, service, fixture.HoldRequest(id, "b", at(3, 1))); err != nil {
			t.Error(err)
		}
	})
	letGo()
	if first == "" || first != retry {
		t.Errorf("the retry was answered with %s, the first request with %s", retry, first)
	}
	if now := fixture.HoldNow(t, db, h.ID); !released[0] || released[1] || now.State != inventory.HoldReleased || now.Extensions != 1 {
		t.Errorf("released: %v; it is %+v", released, now)
	}
	if n := commits.Load(); n > 2 { // the first is that of what was outside
		t.Errorf("it took %d transactions", n)
	}
	expectCounts(t, db, id, 1, 0)
	fixture.Sound(t, db)
}

// A process dies right before its commit: nothing of what it did is there, the
// expired hold it had ended included, and the same request gets all of it later.
func TestADeathBeforeTheCommitLeavesNothingHalf(t *testing.T) {
	db, id := campaignOn(t, 4)
	service := fixture.Holds(t, db, nil, nil)
	late := fixture.Hold(t, service, fixture.HoldRequest(id, "late", at(2, 1)))
	fixture.EndHold(t, db, late)
	request := fixture.HoldRequest(id, "dies-"+id.String(), at(2, 1), at(3, 1))
	alive := failpoint.Set("holds.commit", request.Job.UserID, func() { panic("the process dies") })
	_, err := fixture.TryHold(t, service, request)
	expectCode(t, "of a dead process", err, fault.InternalError)
	if h := fixture.HoldNow(t, db, late.ID); h.EndedAt != nil || jobs(t, db, request) != 0 {
		t.Errorf("the expired hold is %+v", h)
	}
	expectCounts(t, db, id, 0, 0)
	fixture.Sound(t, db)
	alive()
	if made := fixture.Hold(t, service, request); len(made.Positions) != 2 {
		t.Errorf("it got %+v", made)
	}
	fixture.Sound(t, db)
}

// Requests that come while a transaction runs share the next one.
func TestACrowdIsServedByOneTransaction(t *testing.T) {
	db, id := campaignOn(t, 5)
	service := fixture.Holds(t, db, nil, nil)
	user, began := "counted-"+id.String(), 0
	defer failpoint.Set("holds.commit", user, func() { began++ })()
	requests := []inventory.HoldRequest{fixture.HoldAnyRequest(id, user, 0, 1)}
	for i := range 5 {
		requests = append(requests, fixture.HoldRequest(id, fmt.Sprint("chooser-", i), at(5, 1), at(i%4+1, 1)), fixture.HoldAnyRequest(id, fmt.Sprint("user-", i), 5, 1))
	}
	inOneBatch(t, db, service, id, requests)
	if began != 1 {
		t.Errorf("it took %d transactions", began)
	}
	fixture.Sound(t, db)
}

// A request that breaks its transaction fails alone: the others are tried again
// without it.
func TestABadRequestFailsAlone(t *testing.T) {
	db, id := campaignOn(t, 6)
	service := fixture.Holds(t, db, nil, nil)
	bad := "bad-" + id.String()
	defer failpoint.Set("holds.commit", bad, func() { panic("a defect") })()
	var requests []inventory.HoldRequest
	for i := range 15 {
		user := bad
		if i%5 != 0 {
			user = string(rune('a' + i))
		}
		requests = append(requests, fixture.HoldAnyRequest(id, user, 0, 1))
	}
	_, refused := together(t, []*inventory.Holds{service}, requests)
	for i, err := range refused {
		if (err != nil) != (i%5 == 0) {
			t.Errorf("request %d: %v", i, err)
		}
	}
	expectCounts(t, db, id, 12, 0)
	fixture.Sound(t, db)
}

// The commit takes longer than the hold lasts. The position is not remembered as
// taken when the commit is over.
func TestAPositionIsNotRememberedBeyondItsDeadlineWhenACommitIsSlow(t *testing.T) {
	db, id := campaignOn(t, 4)
	service := fixture.Holds(t, db, open, nil)
	slow := fixture.HoldRequest(id, "slow-"+id.String(), at(3, 2))
	slow.TTL = 100 * time.Millisecond
	defer failpoint.Set("holds.commit", slow.Job.UserID, func() { time.Sleep(slow.TTL + 10*time.Millisecond) })()
	made := fixture.Hold(t, service, slow)
	if h := fixture.HoldNow(t, db, made.ID); h.State != inventory.HoldExpired {
		t.Fatalf("it is %+v", h)
	}
	fixture.Hold(t, service, fixture.HoldRequest(id, "b", at(3, 2)))
	fixture.Sound(t, db)
}

// A hold is not due when the transaction asks what is, and over when it looks at
// the positions: it is taken for this transaction, and free for the next.
func TestAHoldThatEndsInTheMiddleIsRefusedOnceAndNotRemembered(t *testing.T) {
	db, id := campaignOn(t, 4)
	service := fixture.Holds(t, db, open, nil)
	service.SetRowWait(servers.Patience, servers.Patience)
	due := fixture.Hold(t, service, fixture.HoldRequest(id, "due", at(1, 1)))
	last := fixture.Hold(t, fixture.Holds(t, db, nil, nil), fixture.HoldRequest(id, "last", at(3, 2)))
	fixture.EndHold(t, db, due)
	letGo := fixture.LockRows(t, db, `holds WHERE id = $1`, due.ID) // what is due has been read by then, and nothing else
	refused := make(chan error, 1)
	go func() {
		_, err := fixture.TryHold(t, service, fixture.HoldRequest(id, "early", at(3, 2)))
		refused <- err
	}()
	servers.AwaitBlocked(t, db, 1)
	fixture.EndHoldMeanwhile(t, db, last)
	letGo()
	expectTaken(t, "by what was not due", <-refused, "/positions/0")
	fixture.Hold(t, service, fixture.HoldRequest(id, "next", at(3, 2)))
	fixture.Sound(t, db)
}

// A writer that changes positions, counters or holds without the campaign's lock
// breaks the rule. Every change that meets this fails as a whole.
func TestRowsThatMovedWithoutTheLockAreNotTouched(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	service := fixture.Holds(t, db, nil, nil)
	for name, damage := range map[string]string{
		"a position is of another hold": `UPDATE positions SET hold_id = gen_random_uuid() WHERE campaign_id = $1 AND layer = 3 AND state = 'held'`,
		"a position lost its hold":      `UPDATE positions SET state = 'available', user_id = NULL, hold_id = NULL, expires_at = NULL WHERE campaign_id = $1 AND layer = 3`,
		"the campaign left the sale":    `UPDATE campaigns SET state = 'cancelled', cancelled_at = clock_timestamp(), cancelled_by = 'operator:test' WHERE id = $1`,
	} {
		id := fixture.Campaign(t, db, fixture.Draft(4))
		h := fixture.Hold(t, service, fixture.HoldRequest(id, "a", at(3, 1), at(4, 1)))
		servers.Exec(t, db, damage, id)
		if _, err := releaseAt(t, service, h.ID); !errors.Is(err, postgres.ErrRows) {
			t.Errorf("%s, release: %v", name, err)
		}
		if _, err := extendAt(t, service, h.ID, time.Hour); !errors.Is(err, postgres.ErrRows) {
			t.Errorf("%s, extend: %v", name, err)
		}
		fixture.EndHold(t, db, h)
		if _, _, err := inventory.ExpireHolds(t.Context(), db, id, 10); !errors.Is(err, postgres.ErrRows) {
			t.Errorf("%s, expire: %v", name, err)
		}
		if got := fixture.HoldNow(t, db, h.ID); got.EndedAt != nil || got.Extensions != 0 {
			t.Errorf("%s: it is %+v", name, got)
		}
	}
}

// No change is decided without the campaign's lock.
func TestEveryChangeWaitsForTheCampaign(t *testing.T) {
	db, id := campaignOn(t, 4)
	service := func() *inventory.Holds { // each its own: one sends its changes together
		s := fixture.Holds(t, db, nil, nil)
		s.SetRowWait(servers.Patience, servers.Patience)
		return s
	}
	let := fixture.Hold(t, service(), fixture.HoldRequest(id, "a", at(3, 1)))
	kept := fixture.Hold(t, service(), fixture.HoldRequest(id, "b", at(4, 1)))
	unlock := fixture.LockCampaign(t, db, id)
	changes := []func() error{
		func() error {
			_, err := fixture.TryHold(t, service(), fixture.HoldRequest(id, "c", at(3, 2)))
			return err
		},
		func() error { _, err := extendAt(t, service(), kept.ID, time.Minute); return err },
		func() error { _, err := releaseAt(t, service(), let.ID); return err },
		func() error { _, _, err := inventory.ExpireHolds(t.Context(), db, id, 1); return err },
	}
	done := make(chan error, len(changes))
	for _, do := range changes {
		go func() { done <- do() }()
	}
	servers.AwaitBlocked(t, db, len(changes))
	if len(done) > 0 {
		t.Errorf("a change did not wait: %v", <-done)
	}
	unlock()
	for range changes {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	expectCounts(t, db, id, 2, 0)
	fixture.Sound(t, db)
}
