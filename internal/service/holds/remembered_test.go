package holds_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/uuidv7"
	"triprize/internal/service/holds"
	"triprize/internal/testkit/fixture"
)

// jobs counts the jobs of an ask's key.
func jobs(t *testing.T, db *pgxpool.Pool, ask holds.Request) (n int) {
	t.Helper()
	err := db.QueryRow(t.Context(), `SELECT count(*) FROM jobs WHERE client = $1 AND idempotency_key = $2`, ask.Job.Client, ask.Job.Key).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestWhatIsKnownToBeTakenIsRefusedWithoutATransaction(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	id, desk := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Holds(t, db, open, nil)
	fixture.Hold(t, desk, fixture.HoldRequest(id, "a", at(3, 2)))
	ask := fixture.HoldRequest(id, "b", at(1, 1), at(3, 2))
	_, err := fixture.TryHold(t, desk, ask)
	expectTaken(t, "remembered", err, "/positions/1")
	if n := jobs(t, db, ask); n != 0 {
		t.Error("the refusal was recorded")
	}
}

func TestAReleasedPositionCanBeHeldAgainAtOnce(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	id, desk := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Holds(t, db, open, nil)
	made := fixture.Hold(t, desk, fixture.HoldRequest(id, "a", at(3, 2), at(1, 1)))
	_, err := fixture.TryHold(t, desk, fixture.HoldRequest(id, "b", at(3, 2)))
	expectTaken(t, "held", err, "/positions/0")
	if released, err := desk.Release(t.Context(), made.ID); err != nil || !released {
		t.Fatal(released, err)
	}
	fixture.Hold(t, desk, fixture.HoldRequest(id, "b", at(3, 2)))
	fixture.Hold(t, desk, fixture.HoldRequest(id, "c", at(1, 1)))
	fixture.Sound(t, db)
}

// The hold lasts less than the second for which a taken position is remembered.
func TestAnExpiredPositionIsNeverRefusedBecauseItIsRemembered(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	id, desk := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Holds(t, db, open, nil)
	short := fixture.HoldRequest(id, "a", at(3, 2))
	short.TTL = 700 * time.Millisecond
	made := fixture.Hold(t, desk, short)
	_, err := fixture.TryHold(t, desk, fixture.HoldRequest(id, "b", at(3, 2)))
	expectTaken(t, "held", err, "/positions/0")
	waitUntil(t, db, made.ExpiresAt)
	fixture.Hold(t, desk, fixture.HoldRequest(id, "b", at(3, 2)))

	// The same of one that was found, not made, by this process.
	other := fixture.Holds(t, db, nil, nil)
	short = fixture.HoldRequest(id, "a", at(4, 4))
	short.TTL = 700 * time.Millisecond
	made = fixture.Hold(t, other, short)
	_, err = fixture.TryHold(t, desk, fixture.HoldRequest(id, "b", at(4, 4)))
	expectTaken(t, "held by way of another process", err, "/positions/0")
	waitUntil(t, db, made.ExpiresAt)
	fixture.Hold(t, desk, fixture.HoldRequest(id, "b", at(4, 4)))
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
	db := fixture.DB(t)
	id, desk := fixture.Campaign(t, db, fixture.Draft(4)), fixture.Holds(t, db, open, nil)
	ask := fixture.HoldRequest(id, "a", at(3, 2))
	made := fixture.Hold(t, desk, ask)
	for range 3 {
		ask.Job.ID = uuidv7.New()
		if again := fixture.Hold(t, desk, ask); again.ID != made.ID {
			t.Errorf("got another hold: %+v", again)
		}
	}
	fixture.EndHold(t, db, made)
	fixture.Hold(t, fixture.Holds(t, db, nil, nil), fixture.HoldRequest(id, "b", at(3, 2)))
	ask.Job.ID = uuidv7.New()
	if again := fixture.Hold(t, desk, ask); again.ID != made.ID {
		t.Errorf("after its end: %+v", again)
	}
	expectCounts(t, db, id, 1, 0)
}
