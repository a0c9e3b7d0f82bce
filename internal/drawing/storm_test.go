//go:build failpoint

package drawing_test

import (
	"context"
	"errors"
	"strings"
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
			chain := newChain(t)
			ref := withBeacon(t, db, chain)
			id, served := ref.CampaignID, newRelays(db)
			served.round = func(n uint64) (beacon.Round, error) { return chain.Sign(n), nil }
			drawer, other := drawerWith(t, db, drawing.DrawerOptions{Beacon: served}), drawerWith(t, db, drawing.DrawerOptions{Beacon: served})
			paused := false
			defer failpoint.Set(moment, id.String(), func() {
				if paused { // the other worker passes
					return
				}
				paused = true
				servers.Exec(t, db, `UPDATE campaigns SET execution_locked_at = clock_timestamp() - interval '2 hours' WHERE id = $1`, id)
				if moment == "draw.frozen" { // the other one goes on only when the round is due
					clock.MoveOn(time.Hour)
				}
				_, err := other.Run(t.Context(), ref)
				if _, waits := errors.AsType[*drawing.Snoozed](err); err != nil && !waits {
					t.Errorf("the other worker: %v", err)
				}
			})()
			fenced := false
			servers.Eventually(t, "it is drawn", func() bool {
				_, err := drawer.Run(t.Context(), ref)
				fenced = fenced || errors.Is(err, campaign.ErrFenced)
				if _, waits := errors.AsType[*drawing.Snoozed](err); waits {
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

// unguarded is a pool without the execution lock and its fence: whoever claims a draw has it, and goes on.
type unguarded struct {
	*pgxpool.Pool
	removed *atomic.Int32 // guards
}

func (p unguarded) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := p.Pool.Begin(ctx)
	return unguardedTx{tx, p.removed}, err
}

type unguardedTx struct {
	pgx.Tx
	removed *atomic.Int32
}

func (tx unguardedTx) without(sql string) string {
	without := strings.NewReplacer(`(execution_lock_id IS NULL OR`, `(true OR`, `campaigns SET execution_locked_at = clock_timestamp()`, `campaigns SET name = name`,
		`AND state = 'drawing' AND execution_lock_id = $2 AND execution_version = $3`, `AND $2::uuid IS NOT NULL AND $3::bigint > 0`).Replace(sql)
	if without != sql {
		tx.removed.Add(1)
	}
	return without
}

func (tx unguardedTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return tx.Tx.Exec(ctx, tx.without(sql), args...)
}

func (tx unguardedTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return tx.Tx.QueryRow(ctx, tx.without(sql), args...)
}

// Ten workers have a draw at once, and meet before each of its two writes. The keys of the tables let one write.
func TestWithoutTheExecutionLockThereIsStillOneFreezeAndOneDraw(t *testing.T) {
	t.Parallel()
	const workers = 10
	db := servers.DB(t)
	ref := fixture.SellOut(t, db, fixture.Campaign(t, db, fixture.Draft(3)))
	for _, moment := range []string{"draw.freeze", "draw.record"} {
		var come sync.WaitGroup
		come.Add(workers)
		defer failpoint.Set(moment, ref.CampaignID.String(), func() { come.Done(); come.Wait() })()
	}
	var all sync.WaitGroup
	var refused, removed atomic.Int32
	for i := range workers {
		mine := ref
		if i > 0 {
			mine = ask(t, db, ref.CampaignID)
		}
		all.Go(func() {
			drawer := drawing.NewDrawer(unguarded{db, &removed}, fixture.Key(t), settings, drawing.DrawerOptions{}, servers.Logger(t))
			for _, err := drawer.Run(t.Context(), mine); err != nil; _, err = drawer.Run(t.Context(), mine) {
				if no, ok := errors.AsType[*pgconn.PgError](err); !ok || no.ConstraintName != "freezes_pkey" && no.ConstraintName != "draws_pkey" {
					t.Errorf("refused for another reason: %v", err)
					return
				}
				refused.Add(1)
			}
		})
	}
	all.Wait()
	if n := refused.Load(); n != 2*(workers-1) || removed.Load() < 3*workers {
		t.Errorf("%d writes were refused, want all but one of %d freezes and as many draws; %d guards were removed", n, workers, removed.Load())
	}
	if n := servers.Value[int](t, db, `SELECT count(DISTINCT result::text) FROM jobs WHERE kind = 'draw' AND state = 'succeeded' HAVING count(*) = $1`, workers); n != 1 {
		t.Errorf("%d results", n)
	}
	expectOne(t, db, ref.CampaignID)
	fixture.Sound(t, db)
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

// drawSlowly draws a campaign with a short lease, and does something before the record.
func drawSlowly(t *testing.T, meanwhile func(db *pgxpool.Pool, id uuid.UUID)) {
	t.Helper()
	db := servers.DB(t)
	ref := fixture.SellOut(t, db, fixture.Campaign(t, db, fixture.Draft(3)))
	short := settings
	short.Lease = 150 * time.Millisecond
	defer failpoint.Set("draw.record", ref.CampaignID.String(), func() { meanwhile(db, ref.CampaignID) })()
	drawn(t, drawing.NewDrawer(db, fixture.Key(t), short, drawing.DrawerOptions{}, servers.Logger(t)), ref)
}

// A draw that takes longer than a lease keeps its lock: it renews the lease several
// times within each.
func TestALongDrawKeepsItsLock(t *testing.T) {
	t.Parallel()
	drawSlowly(t, func(db *pgxpool.Pool, id uuid.UUID) {
		var last time.Time
		renewals := 0
		servers.Eventually(t, "the lease is renewed for longer than it lasts", func() bool {
			if now := servers.Value[time.Time](t, db, `SELECT execution_locked_at FROM campaigns WHERE id = $1`, id); now.After(last) {
				last = now
				renewals++
			}
			return renewals > 6 // the first is the lock
		})
		if _, ok, err := campaign.Claim(t.Context(), db, id, "a worker", time.Hour); ok || err != nil {
			t.Errorf("claimed by another: %v, %v", ok, err)
		}
	})
}

// A renewal finds the claim gone while the record begins, as one does that waits for the
// record's commit. The record goes on: the fence decides alone, and here it says yes.
func TestARenewalThatFindsNoClaimDoesNotCutTheRecordOff(t *testing.T) {
	t.Parallel()
	drawSlowly(t, func(db *pgxpool.Pool, id uuid.UUID) {
		const set = `UPDATE campaigns SET execution_lock_id = $2 WHERE id = $1`
		claim := servers.Value[uuid.UUID](t, db, `SELECT execution_lock_id FROM campaigns WHERE id = $1`, id)
		in(t, db, func(tx pgx.Tx) error {
			servers.Exec(t, tx, set, id, uuid.New())
			servers.AwaitBlocked(t, db, 1) // the renewal
			return nil
		})
		servers.Eventually(t, "the renewal has ended", func() bool { return db.Stat().AcquiredConns() == 0 })
		servers.Exec(t, db, set, id, claim)
	})
}
