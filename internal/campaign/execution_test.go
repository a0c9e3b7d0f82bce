package campaign_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/campaign"
	"triprize/internal/testkit/servers"
)

const lease = time.Hour

// claim claims a campaign that is free.
func claim(t *testing.T, db *pgxpool.Pool, id uuid.UUID) campaign.Execution {
	t.Helper()
	e, ok, err := campaign.Claim(t.Context(), db, id, "a worker", lease)
	if err != nil || !ok {
		t.Fatalf("not claimed: %v, %v", ok, err)
	}
	return e
}

// execution returns the lock columns of a campaign.
func execution(t *testing.T, db *pgxpool.Pool, id uuid.UUID) (holder uuid.UUID, version int64) {
	t.Helper()
	var lock uuid.NullUUID
	servers.NoError(t, db.QueryRow(t.Context(), `SELECT execution_lock_id, execution_version FROM campaigns WHERE id = $1`, id).Scan(&lock, &version))
	return lock.UUID, version
}

// silence makes the holder of the lock look silent for some seconds.
func silence(t *testing.T, db *pgxpool.Pool, id uuid.UUID, d time.Duration) {
	t.Helper()
	exec(t, db, `UPDATE campaigns SET execution_locked_at = clock_timestamp() - $2 * interval '1 second' WHERE id = $1`, id, d.Seconds())
}

func TestEveryClaimHasAHigherVersionAndALockOfItsOwn(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := put(t, db, campaign.Drawing)
	var locks []uuid.UUID
	for want := int64(1); want <= 6; want++ {
		e := claim(t, db, id)
		if e.Version != want || slices.Contains(locks, e.LockID) {
			t.Errorf("claim %d is %+v", want, e)
		}
		locks = append(locks, e.LockID)
		if want%2 == 0 { // given back, or taken over
			if err := e.Release(t.Context(), db); err != nil {
				t.Error(err)
			}
		} else {
			silence(t, db, id, lease+time.Second)
		}
	}
}

func TestALockLastsAsLongAsItsLeaseFromTheLastRenewal(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := put(t, db, campaign.Drawing)
	e := claim(t, db, id)
	silence(t, db, id, lease/2)
	if _, ok, err := campaign.Claim(t.Context(), db, id, "a worker", lease); err != nil || ok {
		t.Errorf("claimed within the lease: %v, %v", ok, err)
	}
	silence(t, db, id, 2*lease)
	servers.NoError(t, e.Renew(t.Context(), db))
	if _, ok, err := campaign.Claim(t.Context(), db, id, "a worker", lease); err != nil || ok {
		t.Errorf("claimed after a renewal: %v, %v", ok, err)
	}
	if released, err := campaign.ReleaseStale(t.Context(), db, lease, 10); err != nil || len(released) != 0 {
		t.Errorf("taken away after a renewal: %v, %v", released, err)
	}
	if holder, version := execution(t, db, id); holder != e.LockID || version != e.Version {
		t.Errorf("the row has %s at version %d", holder, version)
	}
}

func TestTheFenceWantsBothTheLockAndItsVersion(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := put(t, db, campaign.Drawing)
	e := claim(t, db, id)
	older, newer, stranger, elsewhere := e, e, e, e
	older.Version--
	newer.Version++
	stranger.LockID = uuid.New()
	elsewhere.CampaignID = put(t, db, campaign.Drawing)
	before := everything(t, db, id)
	writes := map[string]func(tx pgx.Tx, e campaign.Execution) error{
		"renew":    func(tx pgx.Tx, e campaign.Execution) error { return e.Renew(t.Context(), tx) },
		"release":  func(tx pgx.Tx, e campaign.Execution) error { return e.Release(t.Context(), tx) },
		"complete": func(tx pgx.Tx, e campaign.Execution) error { return e.Complete(t.Context(), tx) },
	}
	for what, write := range writes {
		for who, e := range map[string]campaign.Execution{"an older version": older, "a newer version": newer, "another lock": stranger, "another campaign": elsewhere} {
			if err := attempt(t, db, func(tx pgx.Tx) error { return write(tx, e) }); !errors.Is(err, campaign.ErrFenced) {
				t.Errorf("%s with %s: %v", what, who, err)
			}
		}
	}
	if after := everything(t, db, id); after != before {
		t.Errorf("something changed:\n%s\n%s", before, after)
	}
	if err := attempt(t, db, func(tx pgx.Tx) error { return writes["complete"](tx, e) }); err != nil {
		t.Errorf("the holder completes: %v", err)
	}
	if c := get(t, db, id); c.State != campaign.Completed || c.DrawCompletedAt == nil {
		t.Errorf("completed: %+v", c)
	}
	for what, write := range writes {
		if err := attempt(t, db, func(tx pgx.Tx) error { return write(tx, e) }); !errors.Is(err, campaign.ErrFenced) {
			t.Errorf("%s after the completion: %v", what, err)
		}
	}
}

// The completion keeps others out until its transaction, which records the draw, has ended.
func TestAClaimWaitsForTheEndOfACompletion(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	for _, commit := range []bool{true, false} {
		id := put(t, db, campaign.Drawing)
		e := claim(t, db, id)
		silence(t, db, id, 2*lease)
		tx := begin(t, db)
		servers.NoError(t, e.Complete(t.Context(), tx))
		var claimed bool
		if err := behind(t, db, tx, commit, func() (err error) {
			_, claimed, err = campaign.Claim(t.Context(), db, id, "a worker", lease)
			return err
		}); err != nil || claimed == commit {
			t.Errorf("the completion committed: %v; claimed by another: %v, %v", commit, claimed, err)
		}
	}
}

func TestADrawnCampaignIsNotClaimedEvenIfItsStateLags(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := put(t, db, campaign.Drawing)
	exec(t, db, `
		INSERT INTO draws (campaign_id, trust, root, secret, randomness, winners, execution_version)
		VALUES ($1, 'operator', sha256('r'), sha256('s'), '', '[]', 1)`, id)
	if _, ok, err := campaign.Claim(t.Context(), db, id, "a worker", lease); err != nil || ok {
		t.Errorf("claimed: %v, %v", ok, err)
	}
}

func TestStaleLocksAreReleasedAFewAtATimeAndLockedRowsLeftAlone(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	var stale []uuid.UUID
	for range 4 {
		id := put(t, db, campaign.Drawing)
		claim(t, db, id)
		silence(t, db, id, 2*lease)
		stale = append(stale, id)
	}
	put(t, db, campaign.Drawing) // no worker has it
	slices.SortFunc(stale, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	holder := begin(t, db)
	servers.NoError(t, campaign.Lock(t.Context(), holder, stale[1]))
	release := func(limit int) []uuid.UUID {
		released, err := campaign.ReleaseStale(t.Context(), db, lease, limit)
		servers.NoError(t, err)
		slices.SortFunc(released, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
		return released
	}
	if got := release(2); !slices.Equal(got, []uuid.UUID{stale[0], stale[2]}) {
		t.Errorf("the first two: %v of %v", got, stale)
	}
	if got := release(2); !slices.Equal(got, stale[3:]) {
		t.Errorf("the rest: %v of %v", got, stale)
	}
	servers.NoError(t, holder.Rollback(t.Context()))
	if got := release(2); !slices.Equal(got, stale[1:2]) {
		t.Errorf("after its row was let go: %v of %v", got, stale)
	}
	for _, id := range stale {
		if lock, version := execution(t, db, id); lock != uuid.Nil || version != 2 {
			t.Errorf("%s: lock %s, version %d", id, lock, version)
		}
	}
}
