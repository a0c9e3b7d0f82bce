//go:build failpoint

package drawing_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize.example/draw/beacon"
	"triprize/internal/campaign"
	"triprize/internal/drawing"
	"triprize/internal/job"
	"triprize/internal/platform/failpoint"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// Before every write of a draw its worker is paused for longer than the lease, and another
// one goes on meanwhile. What the first then writes is not written, and the campaign is
// drawn as if it had not been there.
func TestAWorkerPausedPastItsLeaseBeforeAnyStepWritesNothing(t *testing.T) {
	t.Parallel()
	for _, moment := range []string{"draw.claimed", "draw.freeze", "draw.frozen", "draw.fetch", "draw.fetched", "draw.record"} {
		t.Run(moment, func(t *testing.T) {
			t.Parallel()
			db, clock := servers.DBWithClock(t)
			s := newSigner(t)
			id := withBeacon(t, db, s)
			ref := fixture.SellOut(t, db, id)
			served := &relays{db: db, round: func(n uint64) (beacon.Round, error) { return s.sign(n), nil }}
			other := drawerWith(t, db, drawing.DrawerOptions{Beacon: served})
			paused := false
			defer failpoint.Set(moment, id.String(), func() {
				if paused { // the other worker passes
					return
				}
				paused = true
				silence(t, db, id)
				if moment == "draw.frozen" { // the other one goes on only when the round is due
					clock.MoveOn(time.Hour)
				}
				_, err := other.Run(t.Context(), ref)
				if _, waits := errors.AsType[*drawing.Waiting](err); err != nil && !waits {
					t.Errorf("the other worker: %v", err)
				}
			})()
			drawer := drawerWith(t, db, drawing.DrawerOptions{Beacon: served})
			fenced := false
			servers.Eventually(t, "it is drawn", func() bool {
				_, err := drawer.Run(t.Context(), ref)
				fenced = fenced || errors.Is(err, campaign.ErrFenced)
				if _, waits := errors.AsType[*drawing.Waiting](err); waits {
					clock.MoveOn(time.Minute)
				}
				return err == nil || errors.Is(err, job.ErrFinal)
			})
			if !paused || !fenced {
				t.Errorf("paused: %v, fenced: %v", paused, fenced)
			}
			expectOne(t, db, id)
			fixture.Sound(t, db)
		})
	}
}

// Without its lock and without any fence, ten workers stand before the freeze together,
// and then before the record. The primary keys let one of each through.
func TestWithoutTheExecutionLockThereIsStillOneFreezeAndOneDraw(t *testing.T) {
	t.Parallel()
	const workers = 10
	db, s := servers.DB(t), newSigner(t)
	for _, id := range []uuid.UUID{fixture.Campaign(t, db, fixture.Draft(3)), withBeacon(t, db, s)} {
		putBack := failpoint.Disable("campaign.execution", id.String())
		refs := []job.Ref{fixture.SellOut(t, db, id)}
		for len(refs) < workers {
			refs = append(refs, ask(t, db, id))
		}
		removeFreeze := failpoint.Set("draw.freeze", id.String(), meeting(workers))
		removeRecord := failpoint.Set("draw.record", id.String(), meeting(workers))
		var refused atomic.Int32
		var all sync.WaitGroup
		for _, ref := range refs {
			all.Go(func() { refused.Add(drawUnlocked(t, db, s, id, ref)) })
		}
		all.Wait()
		removeFreeze()
		removeRecord()
		putBack()
		if n := refused.Load(); n != 2*(workers-1) {
			t.Errorf("%d writes were refused, want all but one of %d freezes and %d draws", n, workers, workers)
		}
		expectOne(t, db, id)
		for _, ref := range refs { // those that were refused get the one result
			if _, err := newDrawer(t, db).Run(t.Context(), ref); err != nil && !errors.Is(err, job.ErrFinal) {
				t.Error(err)
			}
			if a, b := fixture.Job(t, db, refs[0].ID), fixture.Job(t, db, ref.ID); string(a.Result) != string(b.Result) || a.State != job.Succeeded {
				t.Errorf("%s and %s, two results:\n%s\n%s", a.State, b.State, a.Result, b.Result)
			}
		}
	}
	fixture.Sound(t, db)
}

// drawUnlocked goes on with a draw until it has come to the record, and counts how often
// the tables refused what it wrote.
func drawUnlocked(t *testing.T, db *pgxpool.Pool, s signer, id uuid.UUID, ref job.Ref) (refused int32) {
	for {
		_, err := drawerWith(t, db, drawing.DrawerOptions{}).Run(t.Context(), ref)
		if _, waits := errors.AsType[*drawing.Waiting](err); waits {
			f, _, err := drawing.FreezeOf(t.Context(), db, id)
			if err == nil {
				err = drawing.InsertRound(t.Context(), db, s.Hash(), s.sign(*f.Round))
			}
			if err != nil {
				t.Error(err)
				return refused
			}
			continue
		}
		if err == nil {
			return refused
		}
		no, ok := errors.AsType[*pgconn.PgError](err)
		if !ok || no.ConstraintName != "freezes_pkey" && no.ConstraintName != "draws_pkey" {
			t.Errorf("refused for another reason: %v", err)
			return refused
		}
		if refused++; no.ConstraintName == "draws_pkey" {
			return refused
		}
	}
}

// meeting returns a function whose first n callers wait for each other.
func meeting(n int) func() {
	var come atomic.Int32
	there := make(chan struct{})
	return func() {
		switch mine := int(come.Add(1)); {
		case mine == n:
			close(there)
		case mine < n:
			<-there
		}
	}
}

// expectOne expects one freeze and one draw of a campaign.
func expectOne(t *testing.T, db *pgxpool.Pool, id uuid.UUID) {
	t.Helper()
	for _, table := range []string{"freezes", "freeze_subtrees", "draws"} {
		if n := servers.Value[int](t, db, `SELECT count(*) FROM `+table+` WHERE campaign_id = $1`, id); n != 1 {
			t.Errorf("%d rows in %s", n, table)
		}
	}
}

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
