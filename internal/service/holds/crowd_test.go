package holds_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/triangle"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/service/holds"
	"triprize/internal/store/campaign"
	"triprize/internal/store/inventory"
	"triprize/internal/testkit/fixture"
)

// open lets everybody in at once.
func open(context.Context, ...string) (func(), error) { return func() {}, nil }

// together asks desks for holds all at once; asks[i] goes to desks[i % n].
func together(t *testing.T, desks []*holds.Service, asks []holds.Request) (made []inventory.Hold, refused []error) {
	t.Helper()
	made, refused = make([]inventory.Hold, len(asks)), make([]error, len(asks))
	var crowd sync.WaitGroup
	start := make(chan struct{})
	for i := range asks {
		crowd.Go(func() {
			<-start
			made[i], refused[i] = fixture.TryHold(t, desks[i%len(desks)], asks[i])
		})
	}
	close(start)
	crowd.Wait()
	return made, refused
}

// inOneBatch asks a desk for holds that end up in one transaction, in no
// particular order: while they come, another one waits for the campaign.
func inOneBatch(t *testing.T, db *pgxpool.Pool, desk *holds.Service, id uuid.UUID, asks []holds.Request) (made []inventory.Hold, refused []error) {
	t.Helper()
	locked, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := campaign.Lock(t.Context(), locked, id); err != nil {
		t.Fatal(err)
	}
	var crowd sync.WaitGroup
	crowd.Go(func() { _, _ = desk.Create(t.Context(), fixture.HoldRequest(id, "outside", at(99, 99))) })
	waiting(t, db, 1)
	crowd.Go(func() { made, refused = together(t, []*holds.Service{desk}, asks) })
	time.Sleep(800 * time.Millisecond) // the looks are done by then
	if err := locked.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	crowd.Wait()
	return made, refused
}

// waiting waits until so many statements wait for locks of others.
func waiting(t *testing.T, db *pgxpool.Pool, statements int) {
	t.Helper()
	for range 1000 {
		var n int
		if err := db.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n >= statements {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("there are not %d that wait", statements)
}

// Desks are processes here: each has lanes and a memory of its own.
func TestOfManyWhoWantOnePositionExactlyOneGetsIt(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	alone := []*holds.Service{fixture.Holds(t, db, nil, nil)}
	several := []*holds.Service{fixture.Holds(t, db, open, nil), fixture.Holds(t, db, nil, nil), fixture.Holds(t, db, open, nil)}
	for _, c := range []struct {
		desks []*holds.Service
		n     int
	}{{alone, 20}, {several, 20}, {alone, 50}, {several, 50}} {
		id := fixture.Campaign(t, db, fixture.Draft(4))
		asks := make([]holds.Request, c.n)
		for i := range asks {
			asks[i] = fixture.HoldRequest(id, fmt.Sprint("user-", i), at(3, 2))
		}
		made, refused := together(t, c.desks, asks)
		winners := 0
		for i := range asks {
			if refused[i] == nil {
				winners++
				if len(made[i].Positions) != 1 {
					t.Errorf("the winner got %+v", made[i])
				}
				continue
			}
			expectTaken(t, "a loser", refused[i], "/positions/0")
		}
		if winners != 1 {
			t.Errorf("%d of %d got the position", winners, c.n)
		}
		expectCounts(t, db, id, 1, 0)
	}
	fixture.Sound(t, db)
}

func TestOverlappingSetsInOppositeOrderNeverDeadlockAndNeverSplit(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	id, other := fixture.Campaign(t, db, fixture.Draft(6)), fixture.Campaign(t, db, fixture.Draft(6))
	desks := []*holds.Service{fixture.Holds(t, db, nil, nil), fixture.Holds(t, db, open, nil), fixture.Holds(t, db, nil, nil)}
	forwards := []triangle.Position{at(2, 1), at(3, 2), at(5, 5), at(6, 1)}
	backwards := []triangle.Position{at(6, 1), at(5, 5), at(4, 4), at(2, 1)}
	var asks []holds.Request
	for i := range 40 {
		user := fmt.Sprint("user-", i)
		asks = append(asks, fixture.HoldRequest(id, user, forwards...), fixture.HoldRequest(other, user, backwards...),
			fixture.HoldRequest(id, user, backwards...), fixture.HoldRequest(other, user, forwards...))
	}
	made, refused := together(t, desks, asks)
	winners := 0
	for i := range asks {
		if refused[i] != nil {
			expectCode(t, "a loser", refused[i], fault.PositionTaken)
			continue
		}
		winners++
		if len(made[i].Positions) != 4 {
			t.Errorf("a set was split: %+v", made[i])
		}
	}
	if winners != 2 { // the sets of a campaign overlap in three
		t.Errorf("%d sets were held in two campaigns", winners)
	}
	expectCounts(t, db, id, 4, 0)
	expectCounts(t, db, other, 4, 0)
	fixture.Sound(t, db)
}

func TestOneKeyFromManyIsOneHoldAndOneAnswer(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(4))
	desks := []*holds.Service{fixture.Holds(t, db, open, nil), fixture.Holds(t, db, open, nil), fixture.Holds(t, db, nil, nil)}
	chosen, random := fixture.HoldRequest(id, "a", at(3, 2), at(4, 1)), fixture.HoldAnyRequest(id, "b", 2, 2)
	var asks []holds.Request
	for i := range 40 {
		ask := chosen
		if i%2 == 1 {
			ask = random
		}
		ask.Job.ID = uuidv7.New() // every request would make a job of its own
		asks = append(asks, ask)
	}
	made, refused := together(t, desks, asks)
	for i := range asks {
		if refused[i] != nil || made[i].ID != made[i%2].ID || len(made[i].Positions) != 2 {
			t.Errorf("answer %d: %+v, %v", i, made[i], refused[i])
		}
	}
	expectCounts(t, db, id, 4, 0)
	for _, desk := range desks {
		again := chosen
		again.Job.ID, again.Job.Hash = uuidv7.New(), sha256.Sum256([]byte("another request"))
		if done, err := desk.Create(t.Context(), again); err != nil || !done.Reused {
			t.Errorf("the key with another body: %+v, %v", done, err)
		}
	}
	fixture.Sound(t, db)
}

// A refusal is an answer as well, when it was recorded: the same to all, for good.
func TestARecordedRefusalIsTheAnswerToItsKey(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	id, desk := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Holds(t, db, nil, nil)
	made := fixture.Hold(t, desk, fixture.HoldRequest(id, "a", at(3, 2)))
	ask := fixture.HoldRequest(id, "b", at(3, 2))
	_, first := fixture.TryHold(t, desk, ask)
	expectTaken(t, "at first", first, "/positions/0")
	if _, err := release(t, db, made.ID); err != nil {
		t.Fatal(err)
	}
	_, err := fixture.TryHold(t, desk, ask)
	expectTaken(t, "when it is free", err, "/positions/0")
	ask.Job.ID, ask.Job.Key = uuidv7.New(), "a fresh key"
	fixture.Hold(t, desk, ask)
	invalid := fixture.HoldRequest(id, "b", at(9, 9))
	_, err = fixture.TryHold(t, desk, invalid)
	expectCode(t, "no such position", err, fault.InvalidRequest)
	invalid.Positions = []triangle.Position{at(1, 1)}
	invalid.Job.Hash = sha256.Sum256([]byte("mended"))
	if _, err := fixture.TryHold(t, desk, invalid); err != nil {
		t.Errorf("the key of a request that was not valid is not free: %v", err)
	}
}

// Both are asked for by one process at the same time, again and again.
func TestACampaignThatStaysLockedFailsItsOwnAsksOnly(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	free, stuck := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Campaign(t, db, fixture.Draft(4))
	for stuck[15]%4 != free[15]%4 { // one lane is to serve both
		stuck = fixture.Campaign(t, db, fixture.Draft(4))
	}
	locked, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := campaign.Lock(t.Context(), locked, stuck); err != nil {
		t.Fatal(err)
	}
	// One of the stuck campaign: a second might come in a batch of its own, when
	// Postgres has given up the transaction that rests.
	asks := []holds.Request{fixture.HoldRequest(stuck, "a", at(1, 1)), fixture.HoldRequest(free, "b", at(1, 1)), fixture.HoldRequest(free, "c", at(2, 1))}
	_, refused := together(t, []*holds.Service{fixture.Holds(t, db, nil, nil)}, asks)
	_ = locked.Rollback(t.Context())
	for i, err := range refused {
		if (err == nil) != (i > 0) {
			t.Errorf("ask %d: %v", i, err)
		}
	}
	expectCounts(t, db, free, 2, 0)
	expectCounts(t, db, stuck, 0, 0)
}
