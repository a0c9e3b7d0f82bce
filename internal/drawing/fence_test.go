//go:build failpoint

package drawing_test

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/campaign"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// A draw that takes longer than a lease keeps its lock: it renews the lease several
// times within each.
func TestALongDrawKeepsItsLock(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(3))
	ref := fixture.SellOut(t, db, id)
	short := settings
	short.Lease = 150 * time.Millisecond
	defer failpoint.Set("draw.record", id.String(), func() {
		last, renewals := lockedAt(t, db, id), 0
		servers.Eventually(t, "the lease is renewed for longer than it lasts", func() bool {
			if now := lockedAt(t, db, id); now.After(last) {
				last = now
				renewals++
			}
			return renewals >= 6
		})
		if _, ok, err := campaign.Claim(t.Context(), db, id, "a worker", time.Hour); ok || err != nil {
			t.Errorf("claimed by another: %v, %v", ok, err)
		}
	})()
	if _, err := newDrawerWith(t, db, short).Run(t.Context(), ref); err != nil {
		t.Error(err)
	}
}

// A renewal finds the claim gone while the record begins, as one does that waits for the
// record's commit. The record goes on: the fence decides alone, and here it says yes.
func TestARenewalThatFindsNoClaimDoesNotCutTheRecordOff(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := fixture.Campaign(t, db, fixture.Draft(3))
	ref := fixture.SellOut(t, db, id)
	short := settings
	short.Lease = 150 * time.Millisecond
	defer failpoint.Set("draw.record", id.String(), func() {
		var claim uuid.UUID
		exec := func(db postgres.DB, claim uuid.UUID) {
			t.Helper()
			if _, err := db.Exec(t.Context(), `UPDATE campaigns SET execution_lock_id = $2 WHERE id = $1`, id, claim); err != nil {
				t.Error(err)
			}
		}
		err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
			err := tx.QueryRow(t.Context(), `SELECT execution_lock_id FROM campaigns WHERE id = $1`, id).Scan(&claim)
			exec(tx, uuid.New())
			servers.AwaitBlocked(t, db, 1) // the renewal
			return err
		})
		if err != nil {
			t.Error(err)
		}
		servers.Eventually(t, "the renewal has ended", func() bool { return db.Stat().AcquiredConns() == 0 })
		exec(db, claim)
	})()
	if _, err := newDrawerWith(t, db, short).Run(t.Context(), ref); err != nil {
		t.Error(err)
	}
}

// lockedAt returns when the execution lock was taken or last renewed.
func lockedAt(t *testing.T, db *pgxpool.Pool, id uuid.UUID) time.Time {
	t.Helper()
	return servers.Value[time.Time](t, db, `SELECT execution_locked_at FROM campaigns WHERE id = $1`, id)
}
