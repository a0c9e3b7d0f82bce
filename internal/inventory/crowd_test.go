package inventory_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/platform/config"
	"triprize/internal/platform/lock"
	"triprize/internal/platform/postgres"
	"triprize/internal/purchase"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// Every service is like a process: it has shards and a memory of its own. No locker changes who gets a position.
func TestExactlyOneOfManyRequestsForAPositionGetsIt(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	holds := func(lockers ...lock.AcquireFunc) (services []*inventory.Holds) {
		for _, locker := range lockers {
			services = append(services, fixture.Holds(t, db, locker, nil))
		}
		return services
	}
	for name, services := range map[string][]*inventory.Holds{"no locker": holds(nil), "a locker": holds(open), "none that can be reached": holds(away), "several processes": holds(open, nil, open)} {
		id := fixture.Campaign(t, db, fixture.Draft(4))
		var requests []inventory.HoldRequest
		for i := range 15 {
			requests = append(requests, fixture.HoldRequest(id, fmt.Sprint("user-", i), at(3, 2)), fixture.HoldRequest(id, fmt.Sprint("user-", i), at(3, 2), at(i%4+1, 1)))
		}
		made, refused := together(t, services, requests)
		if n := counting(t, name, refused, fault.PositionTaken); n != 1 {
			t.Errorf("%s: %d got the position", name, n)
		}
		for i, err := range refused {
			if err == nil {
				expectCounts(t, db, id, len(requests[i].Positions), 0)
			} else if fault.From(err).Fields[0].Pointer != "/positions/0" {
				t.Errorf("%s: a loser is told %+v", name, fault.From(err).Fields)
			}
			if err == nil && len(made[i].Positions) != len(requests[i].Positions) {
				t.Errorf("%s: the winner got %+v", name, made[i])
			}
		}
	}
	fixture.Sound(t, db)
}

func TestOverlappingSetsInOppositeOrderNeverDeadlockAndNeverSplit(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, other := fixture.Campaign(t, db, fixture.Draft(6)), fixture.Campaign(t, db, fixture.Draft(6))
	services := []*inventory.Holds{fixture.Holds(t, db, nil, nil), fixture.Holds(t, db, open, nil), fixture.Holds(t, db, nil, nil)}
	forwards := []shape.Position{at(2, 1), at(3, 2), at(5, 5), at(6, 1)}
	backwards := []shape.Position{at(6, 1), at(5, 5), at(4, 4), at(2, 1)}
	var requests []inventory.HoldRequest
	for i := range 20 {
		user := fmt.Sprint("user-", i)
		requests = append(requests, fixture.HoldRequest(id, user, forwards...), fixture.HoldRequest(other, user, backwards...),
			fixture.HoldRequest(id, user, backwards...), fixture.HoldRequest(other, user, forwards...))
	}
	_, refused := together(t, services, requests)
	if n := counting(t, "sets", refused, fault.PositionTaken); n != 2 { // the sets of a campaign overlap in three
		t.Errorf("%d sets were held in two campaigns", n)
	}
	expectCounts(t, db, id, 4, 0)
	expectCounts(t, db, other, 4, 0)
	fixture.Sound(t, db)
}

// A recorded refusal is an answer too: its key gets the same again.
func TestARecordedRefusalIsTheAnswerToItsKey(t *testing.T) {
	db, id := campaignOn(t, 4)
	service := fixture.Holds(t, db, nil, nil)
	made := fixture.Hold(t, service, fixture.HoldRequest(id, "a", at(3, 2)))
	request := fixture.HoldRequest(id, "b", at(3, 2))
	_, first := fixture.TryHold(t, service, request)
	expectTaken(t, "at first", first, "/positions/0")
	if _, err := releaseAt(t, service, made.ID); err != nil {
		t.Fatal(err)
	}
	_, err := fixture.TryHold(t, service, request)
	expectTaken(t, "when it is free", err, "/positions/0")
	request.Job.ID, request.Job.Key = uuidv7.New(), "a fresh key"
	fixture.Hold(t, service, request)
	invalid := fixture.HoldRequest(id, "b", at(9, 9))
	_, err = fixture.TryHold(t, service, invalid)
	expectCode(t, "no such position", err, fault.InvalidRequest)
	invalid.Positions = []shape.Position{at(1, 1)}
	invalid.Job.Hash = sha256.Sum256([]byte("mended"))
	if _, err := fixture.TryHold(t, service, invalid); err != nil {
		t.Errorf("the key of an invalid request is not free: %v", err)
	}
}

var errAway = errors.New("there is no such server")

func away(context.Context, ...string) (func(), error) { return nil, errAway }

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
	db, id := campaignOn(t, 4)
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
	db, id := campaignOn(t, 4)
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
	db, id := campaignOn(t, 8)
	l := &recorder{}
	service := fixture.Holds(t, db, l.acquire, nil)
	for range 5 {
		fixture.Hold(t, service, fixture.HoldAnyRequest(id, "a", 0, 1))
	}
	taken := fixture.Free(t, db, id)[0]
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
	db, id := campaignOn(t, 4)
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
	db, id := campaignOn(t, 4)
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

// The clock of the memory stands still, and the database's does not: what it has seen it does not forget by itself.
func TestAPositionThatIsFreeAgainIsHeldAtOnceThoughItIsRemembered(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, service, other := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Holds(t, db, open, nil), fixture.Holds(t, db, nil, nil)
	service.SetClock(stopped())
	releases := func(by *inventory.Holds) func(h inventory.Hold) {
		return func(h inventory.Hold) {
			if released, err := releaseAt(t, by, h.ID); err != nil || !released {
				t.Error(released, err)
			}
		}
	}
	isOver := func(h inventory.Hold) { fixture.EndHold(t, db, h) }
	for i, c := range []struct {
		maker *inventory.Holds
		ends  func(h inventory.Hold)
	}{{service, releases(service)}, {service, releases(other)}, {service, isOver}, {other, isOver}} { // in this process, and in another one
		made := fixture.Hold(t, c.maker, fixture.HoldRequest(id, "a", at(4, i+1)))
		_, err := fixture.TryHold(t, service, fixture.HoldRequest(id, "b", at(4, i+1)))
		expectTaken(t, "held", err, "/positions/0")
		c.ends(made)
		fixture.Hold(t, service, fixture.HoldRequest(id, "b", at(4, i+1)))
	}
	fixture.Sound(t, db)
}

func TestARefusalSaysWhenThePositionsAreFreeIfNobodyBuysThem(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	for name, service := range map[string]*inventory.Holds{"remembered": fixture.Holds(t, db, open, nil), "read": fixture.Holds(t, db, nil, nil)} {
		service.SetClock(stopped())
		id := fixture.Campaign(t, db, fixture.Draft(4))
		short := fixture.HoldRequest(id, "a", at(3, 1))
		short.TTL = time.Minute
		fixture.Hold(t, service, short)
		long := fixture.Hold(t, service, fixture.HoldRequest(id, "a", at(3, 2)))
		_, err := fixture.TryHold(t, service, fixture.HoldRequest(id, "b", at(3, 2), at(3, 1)))
		refusal, ok := errors.AsType[*fault.Error](err)
		if !ok || refusal.RetryAt.Sub(long.ExpiresAt).Abs() > time.Minute {
			t.Errorf("%s: %+v, the longer hold ends at %s", name, err, long.ExpiresAt)
		}
		unpaid, _ := fixture.Reserve(t, db, id, "d", 1, time.Hour)
		reserved, err := purchase.Get(t.Context(), db, access.Everything(), unpaid)
		servers.NoError(t, err)
		_, err = fixture.TryHold(t, service, fixture.HoldRequest(id, "b", reserved.Items[0].Position))
		p := fixture.Payment(t, db, unpaid)
		if refusal, ok := errors.AsType[*fault.Error](err); !ok || refusal.RetryAt.Sub(p.Deadline).Abs() > time.Minute || p.Latest.Sub(p.Deadline) < 2*time.Minute {
			t.Errorf("%s: %+v, the payment is over at %s", name, err, p.Deadline)
		}
		fixture.Advance(t, db, unpaid, payment.Captured)
		fixture.SettlePayments(t, db, job.Ref{ID: p.PurchaseID, CampaignID: id})
		_, err = fixture.TryHold(t, service, fixture.HoldRequest(id, "b", reserved.Items[0].Position, at(3, 1))) // sold by now
		if refusal, ok := errors.AsType[*fault.Error](err); !ok || !refusal.RetryAt.IsZero() {
			t.Errorf("%s: nobody knows when a sold one is free: %+v", name, err)
		}
	}
}

func TestAKeyIsReplayedAlthoughItsOwnPositionsAreRemembered(t *testing.T) {
	db, id := campaignOn(t, 4)
	service := fixture.Holds(t, db, open, nil)
	request := fixture.HoldRequest(id, "a", at(3, 2))
	made := fixture.Hold(t, service, request)
	for range 3 {
		request.Job.ID = uuidv7.New()
		if again := fixture.Hold(t, service, request); again.ID != made.ID {
			t.Errorf("got another hold: %+v", again)
		}
	}
	fixture.EndHold(t, db, made)
	fixture.Hold(t, fixture.Holds(t, db, nil, nil), fixture.HoldRequest(id, "b", at(3, 2)))
	request.Job.ID = uuidv7.New()
	if again := fixture.Hold(t, service, request); again.ID != made.ID {
		t.Errorf("after its end: %+v", again)
	}
	expectCounts(t, db, id, 1, 0)
}

// One process has requests of every kind for more locked campaigns than it has
// flushes, and those that it tries again wait for ever. The free campaign does not
// wait for them; and when they are unlocked, all of them are served.
func TestCampaignsThatStayLockedDelayNoOther(t *testing.T) {
	t.Parallel()
	settings := servers.Patient(servers.Settings(t))
	db, elsewhere := servers.Pool(t, settings), servers.Pool(t, settings)
	service := fixture.Holds(t, db, nil, nil)
	service.SetRowWait(time.Millisecond, servers.Patience)
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
