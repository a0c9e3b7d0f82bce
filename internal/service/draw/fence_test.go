//go:build failpoint

package draw_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/platform/failpoint"
	"triprize/internal/store/campaign"
	"triprize/internal/store/job"
	"triprize/internal/testkit/fixture"
)

// A worker is paused between its selection and its record for longer than the
// lease; another one draws in the meantime. What the first then writes must not
// be written.
func TestAWorkerPausedPastItsLeaseWritesNothing(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(4))
	ref := fixture.SellOut(t, db, id)
	paused := true
	remove := failpoint.Set("draw.record", id.String(), func() {
		if !paused { // the other worker passes
			return
		}
		paused = false
		silence(t, db, id)
		if _, err := newDrawer(t, db).Run(t.Context(), ref); err != nil {
			t.Errorf("the other worker: %v", err)
		}
	})
	defer remove()
	_, err := newDrawer(t, db).Run(t.Context(), ref)
	if !errors.Is(err, campaign.ErrFenced) {
		t.Errorf("the paused worker got %v", err)
	}
	if j := fixture.Job(t, db, ref.ID); j.State != job.Succeeded {
		t.Errorf("the job is %s", j.State)
	}
	if _, version := execution(t, db, id); version != 2 {
		t.Errorf("version %d", version)
	}
	fixture.Sound(t, db)
}

// The lock is kept while a draw takes longer than its lease.
func TestALongDrawKeepsItsLock(t *testing.T) {
	t.Parallel()
	db := fixture.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(3))
	ref := fixture.SellOut(t, db, id)
	short := settings
	short.Lease = 300 * time.Millisecond
	remove := failpoint.Set("draw.record", id.String(), func() {
		deadline := 5 * short.Lease
		if stolen := claimWithin(t, db, id, short.Lease, deadline); stolen {
			t.Error("the lock ran out under a worker that was alive")
		}
	})
	defer remove()
	if _, err := newDrawerWith(t, db, short).Run(t.Context(), ref); err != nil {
		t.Error(err)
	}
}

// claimWithin tries to take the lock away for a while.
func claimWithin(t *testing.T, db *pgxpool.Pool, id uuid.UUID, lease, while time.Duration) bool {
	t.Helper()
	for deadline := time.Now().Add(while); time.Now().Before(deadline); time.Sleep(lease / 10) {
		_, ok, err := campaign.Claim(t.Context(), db, id, lease)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			return true
		}
	}
	return false
}
