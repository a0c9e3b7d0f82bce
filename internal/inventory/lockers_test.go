package inventory_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"triprize/internal/domain/fault"
	"triprize/internal/inventory"
	"triprize/internal/platform/lock"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

var errAway = errors.New("there is no such server")

func away(context.Context, ...string) (func(), error) { return nil, errAway }

// stopped is a clock that stands still: what is remembered stays remembered.
func stopped() func() time.Time {
	now := time.Now()
	return func() time.Time { return now }
}

func TestNoLockerChangesWhatIsHeld(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	for name, locker := range map[string]lock.AcquireFunc{"none": nil, "open": open, "away": away} {
		id := fixture.Campaign(t, db, fixture.Draft(4))
		service := fixture.Holds(t, db, locker, nil)
		var requests []inventory.HoldRequest
		for i := range 20 {
			requests = append(requests, fixture.HoldRequest(id, fmt.Sprint("user-", i), at(3, 2), at(i%4+1, 1)))
		}
		_, refused := together(t, []*inventory.Holds{service}, requests)
		won := 0
		for _, err := range refused {
			if err == nil {
				won++
			} else {
				expectCode(t, name, err, fault.PositionTaken)
			}
		}
		if won != 1 {
			t.Errorf("%s: %d hold position 3/2", name, won)
		}
		expectCounts(t, db, id, 2, 0)
	}
	fixture.Sound(t, db)
}

// recorder is a locker that counts the locks it gave and got back.
type recorder struct {
	mu    sync.Mutex
	names []string
	given atomic.Int32
	back  atomic.Int32
}

func (l *recorder) acquire(_ context.Context, names ...string) (func(), error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.names = append(l.names, names...)
	l.given.Add(1)
	return func() { l.back.Add(1) }, nil
}

func TestEveryLockIsGivenBack(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(4))
	l := &recorder{}
	service := fixture.Holds(t, db, l.acquire, nil)
	service.SetClock(stopped())
	fixture.Hold(t, service, fixture.HoldRequest(id, "a", at(3, 2), at(1, 1)))
	if want := []string{"position:" + id.String() + ":1/1", "position:" + id.String() + ":3/2"}; !slices.Equal(l.names, want) {
		t.Errorf("locked: %q", l.names)
	}
	fixture.Hold(t, service, fixture.HoldAnyRequest(id, "a", 0, 1)) // nobody else wants just these
	if given := l.given.Load(); given != 1 {
		t.Errorf("%d locks were given", given)
	}
	_, err := fixture.TryHold(t, service, fixture.HoldRequest(id, "b", at(3, 2))) // known to be taken: no lock
	expectTaken(t, "taken", err, "/positions/0")
	_, err = fixture.TryHold(t, service, fixture.HoldRequest(id, "b", at(9, 1)))
	expectCode(t, "outside", err, fault.InvalidRequest)
	if given, back := l.given.Load(), l.back.Load(); given != 2 || back != 2 {
		t.Errorf("%d locks given, %d given back", given, back)
	}
}

// A client that goes away while it waits for its lock leaves none behind.
func TestALockThatCameTooLateIsGivenBack(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(4))
	l := &recorder{}
	ctx, leave := context.WithCancel(t.Context())
	service := fixture.Holds(t, db, func(ctx context.Context, names ...string) (func(), error) {
		leave()
		return l.acquire(ctx, names...)
	}, nil)
	if _, err := service.Create(ctx, fixture.HoldRequest(id, "a", at(3, 2))); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if given, back := l.given.Load(), l.back.Load(); given != 1 || back != 1 {
		t.Errorf("%d locks given, %d given back", given, back)
	}
	expectCounts(t, db, id, 0, 0)
}

// A limit is checked before a lock is taken.
func TestAUserThatMayNotHoldMoreTakesNoLock(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(8))
	l := &recorder{}
	service := fixture.Holds(t, db, l.acquire, nil)
	for range 5 {
		fixture.Hold(t, service, fixture.HoldAnyRequest(id, "a", 0, 1))
	}
	taken := free(t, db, id)[0]
	for range 3 {
		request := fixture.HoldRequest(id, "a", taken)
		_, err := fixture.TryHold(t, service, request)
		expectCode(t, "a sixth hold", err, fault.HoldLimitExceeded)
		if n := jobs(t, db, request); n != 0 {
			t.Error("the refusal was recorded")
		}
	}
	if given := l.given.Load(); given != 0 {
		t.Errorf("%d locks were given", given)
	}
}

// gate is a locker that lets one in at a time, once so many have come.
type gate struct {
	recorder
	come sync.WaitGroup
	one  sync.Mutex
}

func (g *gate) acquire(ctx context.Context, names ...string) (func(), error) {
	g.come.Done()
	g.come.Wait()
	g.one.Lock()
	count, _ := g.recorder.acquire(ctx, names...)
	return func() { count(); g.one.Unlock() }, nil
}

// The first one gets the position. The others are refused when they get the lock,
// without a transaction.
func TestLosersAreRefusedAtTheLockWithoutATransaction(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(4))
	const n = 10
	g := &gate{}
	g.come.Add(n)
	var requests []inventory.HoldRequest
	for i := range n {
		requests = append(requests, fixture.HoldRequest(id, fmt.Sprint("user-", i), at(3, 2)))
	}
	service := fixture.Holds(t, db, g.acquire, nil)
	service.SetClock(stopped())
	_, refused := together(t, []*inventory.Holds{service}, requests)
	recorded := 0
	for i, err := range refused {
		if recorded += jobs(t, db, requests[i]); err != nil {
			expectTaken(t, "a loser", err, "/positions/0")
		}
	}
	if given, back := g.given.Load(), g.back.Load(); recorded != 1 || given != n || back != n {
		t.Errorf("%d transactions; %d locks given, %d given back", recorded, given, back)
	}
	expectCounts(t, db, id, 1, 0)
}

// It is one request, sent again and again: there was no answer yet when they looked.
func TestARetryThatQueuedBehindItsFirstRequestGetsItsAnswer(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(4))
	const n = 6
	g := &gate{}
	g.come.Add(n)
	requests := make([]inventory.HoldRequest, n)
	for i := range requests {
		requests[i] = fixture.HoldRequest(id, "a", at(3, 2))
		requests[i].Job.Key = "the same"
	}
	made, refused := together(t, []*inventory.Holds{fixture.Holds(t, db, g.acquire, nil)}, requests)
	for i, err := range refused {
		if err != nil || made[i].ID != made[0].ID {
			t.Errorf("answer %d: %+v, %v", i, made[i], err)
		}
	}
	expectCounts(t, db, id, 1, 0)
}
