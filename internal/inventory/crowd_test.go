package inventory_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/campaign"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/inventory"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// open is a lock that everybody gets at once.
func open(context.Context, ...string) (func(), error) { return func() {}, nil }

// together sends requests all at once; requests[i] goes to services[i % n].
func together(t *testing.T, services []*inventory.Holds, requests []inventory.HoldRequest) (made []inventory.Hold, refused []error) {
	t.Helper()
	made, refused = make([]inventory.Hold, len(requests)), make([]error, len(requests))
	var crowd sync.WaitGroup
	start := make(chan struct{})
	for i := range requests {
		crowd.Go(func() {
			<-start
			made[i], refused[i] = fixture.TryHold(t, services[i%len(services)], requests[i])
		})
	}
	close(start)
	crowd.Wait()
	return made, refused
}

// inOneBatch sends requests that end up in one transaction, in no particular
// order: while they come, another one waits for the campaign.
func inOneBatch(t *testing.T, db *pgxpool.Pool, service *inventory.Holds, id uuid.UUID, requests []inventory.HoldRequest) (made []inventory.Hold, refused []error) {
	t.Helper()
	service.SetRowWait(servers.Patience, servers.Patience)
	locked, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := campaign.Lock(t.Context(), locked, id); err != nil {
		t.Fatal(err)
	}
	var crowd sync.WaitGroup
	crowd.Go(func() { _, _ = service.Create(t.Context(), fixture.HoldRequest(id, "outside", at(99, 99))) })
	servers.AwaitBlocked(t, db, 1)
	crowd.Go(func() { made, refused = together(t, []*inventory.Holds{service}, requests) })
	servers.Eventually(t, "all requests wait for their transaction", func() bool { return service.Pending(id) == len(requests) })
	if err := locked.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	crowd.Wait()
	return made, refused
}

// Every service is like a process: it has shards and a memory of its own.
func TestExactlyOneOfManyRequestsForAPositionGetsIt(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	alone := []*inventory.Holds{fixture.Holds(t, db, nil, nil)}
	several := []*inventory.Holds{fixture.Holds(t, db, open, nil), fixture.Holds(t, db, nil, nil), fixture.Holds(t, db, open, nil)}
	for _, c := range []struct {
		services []*inventory.Holds
		n        int
	}{{alone, 30}, {several, 30}} {
		id := fixture.Campaign(t, db, fixture.Draft(4))
		requests := make([]inventory.HoldRequest, c.n)
		for i := range requests {
			requests[i] = fixture.HoldRequest(id, fmt.Sprint("user-", i), at(3, 2))
		}
		made, refused := together(t, c.services, requests)
		winners := 0
		for i := range requests {
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
	made, refused := together(t, services, requests)
	winners := 0
	for i := range requests {
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
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(4))
	services := []*inventory.Holds{fixture.Holds(t, db, open, nil), fixture.Holds(t, db, open, nil), fixture.Holds(t, db, nil, nil)}
	chosen, random := fixture.HoldRequest(id, "a", at(3, 2), at(4, 1)), fixture.HoldAnyRequest(id, "b", 2, 2)
	var requests []inventory.HoldRequest
	for i := range 40 {
		request := chosen
		if i%2 == 1 {
			request = random
		}
		request.Job.ID = uuidv7.New() // every request would make a job of its own
		requests = append(requests, request)
	}
	made, refused := together(t, services, requests)
	for i := range requests {
		if refused[i] != nil || made[i].ID != made[i%2].ID || len(made[i].Positions) != 2 {
			t.Errorf("answer %d: %+v, %v", i, made[i], refused[i])
		}
	}
	expectCounts(t, db, id, 4, 0)
	for _, service := range services {
		again := chosen
		again.Job.ID, again.Job.Hash = uuidv7.New(), sha256.Sum256([]byte("another request"))
		if done, err := service.Create(t.Context(), again); err != nil || !done.Reused {
			t.Errorf("the key with another body: %+v, %v", done, err)
		}
	}
	fixture.Sound(t, db)
}

// A recorded refusal is an answer too: its key gets the same again.
func TestARecordedRefusalIsTheAnswerToItsKey(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, service := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Holds(t, db, nil, nil)
	made := fixture.Hold(t, service, fixture.HoldRequest(id, "a", at(3, 2)))
	request := fixture.HoldRequest(id, "b", at(3, 2))
	_, first := fixture.TryHold(t, service, request)
	expectTaken(t, "at first", first, "/positions/0")
	if _, err := release(t, db, made.ID); err != nil {
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
