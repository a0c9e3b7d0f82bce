package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/servers"
)

func TestTransactionsThatMayWaitLeaveConnectionsToOthers(t *testing.T) {
	t.Parallel()
	for connections, permits := range map[int32]int64{2: 1, 3: 1, 4: 2, 5: 3, 10: 6, 20: 12} {
		if got := postgres.Permits(connections); got != permits {
			t.Errorf("of %d connections %d are for them, want %d", connections, got, permits)
		}
	}
	db, registry := servers.DB(t), prometheus.NewRegistry()
	gate := postgres.NewGate(db, registry)
	patient, brief := gate.Retry(0), gate.FirstTry(0)
	var open []pgx.Tx
	// fill begins n transactions, and no more can begin.
	fill := func(what string, pool postgres.Pool, n int) {
		t.Helper()
		gate.SetTimeout(servers.Patience)
		for range n {
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			open = append(open, tx)
		}
		gate.SetTimeout(50 * time.Millisecond)
		if _, err := pool.Begin(t.Context()); !errors.Is(err, postgres.ErrNoPermit) || !postgres.IsTransient(err) || !postgres.IsLocked(err) {
			t.Errorf("one more %s: %v", what, err)
		}
	}
	rollback := func() {
		t.Helper()
		for _, tx := range open {
			if err := tx.Rollback(t.Context()); err != nil {
				t.Error(err)
			}
		}
		open = nil
	}
	fill("patient", patient, 3)
	fill("brief", brief, 3)
	if n := db.Stat().AcquiredConns(); n != 6 {
		t.Errorf("%d connections are in use", n)
	}
	if one := servers.Value[int](t, brief, `SELECT 1`); one != 1 {
		t.Errorf("reading: %v", one)
	}
	if counted, err := registry.Gather(); err != nil || counted[0].GetMetric()[0].GetCounter().GetValue() != 2 ||
		counted[1].GetMetric()[0].GetHistogram().GetSampleCount() != 8 {
		t.Errorf("counted are %v, %v", counted, err)
	}
	if open[0].Commit(t.Context()) != nil || !errors.Is(open[0].Rollback(t.Context()), pgx.ErrTxClosed) { // gives one permit back
		t.Error("a commit failed")
	}
	open = open[1:]
	fill("patient", patient, 1)
	rollback()
	fill("brief", brief, 6)
	if _, err := patient.Begin(t.Context()); !errors.Is(err, postgres.ErrNoPermit) {
		t.Errorf("without a permit: %v", err)
	}
	rollback()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := brief.Begin(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("for one who has left: %v", err)
	}
	fill("patient", patient, 3) // every permit was given back
	rollback()
}

func TestATransactionOfAGateBoundsItsLockWaitsFromTheStart(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	gate := postgres.NewGate(db, prometheus.NewRegistry())
	for pool, want := range map[postgres.Pool]string{gate.FirstTry(70 * time.Millisecond): "70ms", gate.Retry(time.Microsecond): "1ms", gate.FirstTry(0): "5min"} {
		err := postgres.InTx(t.Context(), pool, func(tx pgx.Tx) error {
			if got := servers.Value[string](t, tx, `SHOW lock_timeout`); got != want {
				t.Errorf("it is %s, want %s", got, want)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	if after := servers.Value[string](t, db, `SHOW lock_timeout`); after != "5min" {
		t.Errorf("afterwards it is %s", after)
	}
}

func TestPersistTriesAgainOnlyWhileRowsAreLocked(t *testing.T) {
	t.Parallel()
	tries := 0
	err := postgres.RetryLocked(t.Context(), func() error {
		if tries++; tries < 3 {
			return postgres.ErrNoPermit
		}
		return errors.New("something else")
	})
	if tries != 3 || err == nil || postgres.IsLocked(err) {
		t.Errorf("%d tries, %v", tries, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := postgres.RetryLocked(ctx, func() error { cancel(); return postgres.ErrNoPermit }); !errors.Is(err, postgres.ErrNoPermit) {
		t.Errorf("when nobody waits any more: %v", err)
	}
}
