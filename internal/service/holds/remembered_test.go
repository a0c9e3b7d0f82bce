package holds_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/shape"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/service/holds"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// jobs counts the jobs of a request's key.
func jobs(t *testing.T, db *pgxpool.Pool, request holds.Request) (n int) {
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
	for name, service := range map[string]*holds.Service{"remembered": fixture.Holds(t, db, open, nil), "read": fixture.Holds(t, db, nil, nil)} {
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
		fixture.Buy(t, db, id, "c", 1, 1)
		_, err = fixture.TryHold(t, service, fixture.HoldRequest(id, "b", at(1, 1), at(3, 1)))
		if refusal, ok := errors.AsType[*fault.Error](err); !ok || !refusal.RetryAt.IsZero() {
			t.Errorf("%s: nobody knows when a sold one is free: %+v", name, err)
		}
	}
}

// The hold lasts less than the second for which a taken position is remembered. The
// clock of the memory stands still until the hold is over, and then has moved by no
// more than the hold lasts.
func TestAnExpiredPositionIsNeverRefusedBecauseItIsRemembered(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, service := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Holds(t, db, open, nil)
	now := time.Now()
	service.SetClock(func() time.Time { return now })
	short := func(user string, p shape.Position) holds.Request {
		r := fixture.HoldRequest(id, user, p)
		r.TTL = 300 * time.Millisecond
		return r
	}
	made := fixture.Hold(t, service, short("a", at(3, 2)))
	_, err := fixture.TryHold(t, service, fixture.HoldRequest(id, "b", at(3, 2)))
	expectTaken(t, "held", err, "/positions/0")
	waitUntil(t, db, made.ExpiresAt)
	now = now.Add(300 * time.Millisecond)
	fixture.Hold(t, service, fixture.HoldRequest(id, "b", at(3, 2)))

	// The same of one that was found, not made, by this process.
	other := fixture.Holds(t, db, nil, nil)
	servers.Eventually(t, "a position is found taken before its hold is over", func() bool {
		made = fixture.Hold(t, other, short("a", at(4, 4)))
		early, err := fixture.TryHold(t, service, fixture.HoldRequest(id, "c", at(4, 4)))
		if err == nil { // the hold was over: try again
			if _, err := releaseAt(t, service, early.ID); err != nil {
				t.Fatal(err)
			}
			return false
		}
		expectTaken(t, "held by way of another process", err, "/positions/0")
		return true
	})
	waitUntil(t, db, made.ExpiresAt)
	now = now.Add(300 * time.Millisecond)
	fixture.Hold(t, service, fixture.HoldRequest(id, "b", at(4, 4)))
	fixture.Sound(t, db)
}

// waitUntil waits until the database's clock says so.
func waitUntil(t *testing.T, db *pgxpool.Pool, when time.Time) {
	t.Helper()
	_, err := db.Exec(t.Context(), `SELECT pg_sleep(greatest(0, extract(epoch FROM $1::timestamptz - clock_timestamp())))`, when)
	if err != nil {
		t.Fatal(err)
	}
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
