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
	"triprize/internal/service/holds"
	"triprize/internal/store/campaign"
	"triprize/internal/store/hold"
	"triprize/internal/store/job"
	"triprize/internal/testkit/fixture"
)

// open is a locker that lets everybody in at once.
type open struct{}

func (open) Acquire(context.Context, ...string) (func(), error) { return func() {}, nil }

// together asks desks for holds all at once; asks[i] goes to desks[i % n].
func together(t *testing.T, desks []*holds.Desk, asks []holds.Ask) (made []hold.Hold, refused []error) {
	t.Helper()
	made, refused = make([]hold.Hold, len(asks)), make([]error, len(asks))
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
func inOneBatch(t *testing.T, db *pgxpool.Pool, desk *holds.Desk, id uuid.UUID, asks []holds.Ask) (made []hold.Hold, refused []error) {
	t.Helper()
	locked, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := campaign.Lock(t.Context(), locked, id); err != nil {
		t.Fatal(err)
	}
	var crowd sync.WaitGroup
	crowd.Go(func() { _, _ = desk.Hold(t.Context(), fixture.AskFor(id, "outside", at(99, 99))) })
	waiting(t, db, 1)
	crowd.Go(func() { made, refused = together(t, []*holds.Desk{desk}, asks) })
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
	alone := []*holds.Desk{fixture.Desk(t, db, nil, nil)}
	several := []*holds.Desk{fixture.Desk(t, db, open{}, nil), fixture.Desk(t, db, nil, nil), fixture.Desk(t, db, open{}, nil)}
	for _, c := range []struct {
		desks []*holds.Desk
		n     int
	}{{alone, 20}, {several, 20}, {alone, 50}, {several, 50}} {
		id := fixture.Campaign(t, db, fixture.Draft(4))
		asks := make([]holds.Ask, c.n)
		for i := range asks {
			asks[i] = fixture.AskFor(id, fmt.Sprint("user-", i), at(3, 2))
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
	desks := []*holds.Desk{fixture.Desk(t, db, nil, nil), fixture.Desk(t, db, open{}, nil), fixture.Desk(t, db, nil, nil)}
	forwards := []triangle.Position{at(2, 1), at(3, 2), at(5, 5), at(6, 1)}
	backwards := []triangle.Position{at(6, 1), at(5, 5), at(4, 4), at(2, 1)}
	var asks []holds.Ask
	for i := range 40 {
		user := fmt.Sprint("user-", i)
		asks = append(asks, fixture.AskFor(id, user, forwards...), fixture.AskFor(other, user, backwards...),
			fixture.AskFor(id, user, backwards...), fixture.AskFor(other, user, forwards...))
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
	desks := []*holds.Desk{fixture.Desk(t, db, open{}, nil), fixture.Desk(t, db, open{}, nil), fixture.Desk(t, db, nil, nil)}
	chosen, random := fixture.AskFor(id, "a", at(3, 2), at(4, 1)), fixture.AskForAny(id, "b", 2, 2)
	var asks []holds.Ask
	for i := range 40 {
		ask := chosen
		if i%2 == 1 {
			ask = random
		}
		ask.Job.ID = job.NewID() // every request would make a job of its own
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
		again.Job.ID, again.Job.Hash = job.NewID(), sha256.Sum256([]byte("another request"))
		if done, err := desk.Hold(t.Context(), again); err != nil || !done.Reused {
			t.Errorf("the key with another body: %+v, %v", done, err)
		}
	}
	fixture.Sound(t, db)
}

// A refusal is an answer as well, when it was recorded: the same to all, for good.
func TestARecordedRefusalIsTheAnswerToItsKey(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	id, desk := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Desk(t, db, nil, nil)
	made := fixture.Hold(t, desk, fixture.AskFor(id, "a", at(3, 2)))
	ask := fixture.AskFor(id, "b", at(3, 2))
	_, first := fixture.TryHold(t, desk, ask)
	expectTaken(t, "at first", first, "/positions/0")
	if _, _, err := holds.Release(t.Context(), db, made.ID); err != nil {
		t.Fatal(err)
	}
	_, err := fixture.TryHold(t, desk, ask)
	expectTaken(t, "when it is free", err, "/positions/0")
	ask.Job.ID, ask.Job.Key = job.NewID(), "a fresh key"
	fixture.Hold(t, desk, ask)
	invalid := fixture.AskFor(id, "b", at(9, 9))
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
	asks := []holds.Ask{fixture.AskFor(stuck, "a", at(1, 1)), fixture.AskFor(free, "b", at(1, 1)), fixture.AskFor(free, "c", at(2, 1))}
	_, refused := together(t, []*holds.Desk{fixture.Desk(t, db, nil, nil)}, asks)
	_ = locked.Rollback(t.Context())
	for i, err := range refused {
		if (err == nil) != (i > 0) {
			t.Errorf("ask %d: %v", i, err)
		}
	}
	expectCounts(t, db, free, 2, 0)
	expectCounts(t, db, stuck, 0, 0)
}
