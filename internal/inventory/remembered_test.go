package inventory_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/inventory"
	"triprize/internal/job"
	"triprize/internal/payment"
	"triprize/internal/purchase"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// jobs counts the jobs of a request's key.
func jobs(t *testing.T, db *pgxpool.Pool, request inventory.HoldRequest) (n int) {
	t.Helper()
	err := db.QueryRow(t.Context(), `SELECT count(*) FROM jobs WHERE client = $1 AND idempotency_key = $2`, request.Job.Client, request.Job.Key).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestWhatIsKnownToBeTakenIsRefusedWithoutATransaction(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, service := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Holds(t, db, open, nil)
	service.SetClock(stopped())
	fixture.Hold(t, service, fixture.HoldRequest(id, "a", at(3, 2)))
	request := fixture.HoldRequest(id, "b", at(1, 1), at(3, 2))
	_, err := fixture.TryHold(t, service, request)
	expectTaken(t, "remembered", err, "/positions/1")
	if n := jobs(t, db, request); n != 0 {
		t.Error("the refusal was recorded")
	}
}

func TestAReleasedPositionCanBeHeldAgainAtOnce(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, service := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Holds(t, db, open, nil)
	made := fixture.Hold(t, service, fixture.HoldRequest(id, "a", at(3, 2), at(1, 1)))
	_, err := fixture.TryHold(t, service, fixture.HoldRequest(id, "b", at(3, 2)))
	expectTaken(t, "held", err, "/positions/0")
	if released, err := releaseAt(t, service, made.ID); err != nil || !released {
		t.Fatal(released, err)
	}
	fixture.Hold(t, service, fixture.HoldRequest(id, "b", at(3, 2)))
	fixture.Hold(t, service, fixture.HoldRequest(id, "c", at(1, 1)))
	fixture.Sound(t, db)
}

// The clock of the memory stands still: what it has seen it does not forget by itself.
func TestWhatAnotherProcessFreesCanBeHeldAtOnce(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, service, other := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Holds(t, db, open, nil), fixture.Holds(t, db, nil, nil)
	service.SetClock(stopped())
	made := fixture.Hold(t, service, fixture.HoldRequest(id, "a", at(3, 2), at(1, 1)))
	_, err := fixture.TryHold(t, service, fixture.HoldRequest(id, "b", at(3, 2)))
	expectTaken(t, "held", err, "/positions/0")
	if released, err := releaseAt(t, other, made.ID); err != nil || !released {
		t.Fatal(released, err)
	}
	fixture.Hold(t, service, fixture.HoldRequest(id, "b", at(3, 2)))
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
		if err != nil {
			t.Fatal(err)
		}
		_, err = fixture.TryHold(t, service, fixture.HoldRequest(id, "b", reserved.Items[0].Position))
		p := fixture.Payment(t, db, unpaid)
		if refusal, ok := errors.AsType[*fault.Error](err); !ok || refusal.RetryAt.Sub(p.Deadline).Abs() > time.Minute || p.Latest.Sub(p.Deadline) < 2*time.Minute {
			t.Errorf("%s: %+v, the payment is over at %s", name, err, p.Deadline)
		}
		fixture.Advance(t, db, unpaid, payment.Captured)
		fixture.Conclude(t, db, job.Ref{ID: p.JobID, CampaignID: id})
		_, err = fixture.TryHold(t, service, fixture.HoldRequest(id, "b", reserved.Items[0].Position, at(3, 1))) // sold by now
		if refusal, ok := errors.AsType[*fault.Error](err); !ok || !refusal.RetryAt.IsZero() {
			t.Errorf("%s: nobody knows when a sold one is free: %+v", name, err)
		}
	}
}

// The clock of the memory stands still, and the database's does not.
func TestAnExpiredPositionIsNeverRefusedBecauseItIsRemembered(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, service := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Holds(t, db, open, nil)
	service.SetClock(stopped())
	for at, maker := range map[shape.Position]*inventory.Holds{at(3, 2): service, at(4, 4): fixture.Holds(t, db, nil, nil)} {
		made := fixture.Hold(t, maker, fixture.HoldRequest(id, "a", at))
		_, err := fixture.TryHold(t, service, fixture.HoldRequest(id, "b", at))
		expectTaken(t, "held", err, "/positions/0")
		fixture.EndHold(t, db, made)
		fixture.Hold(t, service, fixture.HoldRequest(id, "b", at))
	}
	fixture.Sound(t, db)
}

func TestAKeyIsReplayedAlthoughItsOwnPositionsAreRemembered(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, service := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Holds(t, db, open, nil)
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
