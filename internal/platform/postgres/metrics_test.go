package postgres_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"

	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
)

// measured returns a pool with metrics, and a function that reads one of them, such as
// "acquire_wait_seconds" or "lock_timeouts_total=sweep": how many values a histogram has, or
// what a counter or gauge says.
func measured(t testing.TB, connections int32) (*pgxpool.Pool, func(series string) float64) {
	t.Helper()
	settings, registry := servers.Patient(servers.Settings(t)).Postgres, prometheus.NewRegistry()
	settings.MaxConnections = connections
	db, err := postgres.Open(t.Context(), settings, "measured", postgres.NewMetrics(registry))
	servers.NoError(t, err)
	t.Cleanup(db.Close)
	return db, func(series string) float64 {
		t.Helper()
		name, label, _ := strings.Cut(series, "=")
		return servers.Counted(t, registry, "triprize_postgres_"+name, label)
	}
}

func TestAPoolSaysWhoWaitsForAConnection(t *testing.T) {
	t.Parallel()
	db, metric := measured(t, 1)
	only, err := db.Acquire(t.Context())
	servers.NoError(t, err)
	var waiting sync.WaitGroup
	waiting.Go(func() { servers.Exec(t, db, `SELECT`) })
	servers.Eventually(t, "somebody waits", func() bool { return metric("connections_waiting") == 1 })
	only.Release()
	waiting.Wait()
	if n, times := metric("connections_waiting"), metric("acquire_wait_seconds"); n != 0 || times != 2 {
		t.Errorf("%v wait, and %v have waited", n, times)
	}
}

func TestNobodyWaitsWhileAFreeConnectionIsMade(t *testing.T) {
	t.Parallel()
	db, metric := measured(t, 1)
	config, begun, goOn := db.Config(), make(chan struct{}), make(chan struct{})
	config.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
		close(begun)
		<-goOn
		return nil
	}
	slow, err := pgxpool.NewWithConfig(t.Context(), config)
	servers.NoError(t, err)
	t.Cleanup(slow.Close)
	var acquiring sync.WaitGroup
	acquiring.Go(func() { servers.Exec(t, slow, `SELECT`) })
	<-begun
	if n := metric("connections_waiting"); n != 0 {
		t.Errorf("%v wait for a connection of a pool that is free", n)
	}
	close(goOn)
	acquiring.Wait()
}

func TestWaitsForRowsAndTransactionsCountForWhatTheyAreFor(t *testing.T) {
	t.Parallel()
	db, metric := measured(t, 4)
	first, second := fixture.Wallet(t, db, "ada", 0), fixture.Wallet(t, db, "bob", 0)
	defer fixture.LockWallet(t, db, first)()
	const lock = `SELECT id FROM wallets WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE`
	ctx := postgres.As(t.Context(), postgres.TxSweep)
	run := func(do func(tx pgx.Tx) error) error {
		return postgres.InTx(ctx, db, func(tx pgx.Tx) error {
			if err := postgres.LimitLockWaits(ctx, tx, time.Millisecond); err != nil {
				return err
			}
			return do(tx)
		})
	}
	waited := metric("lock_wait_seconds=wallets")
	inVain := []error{
		run(func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, lock, []uuid.UUID{first})
			return err
		}),
		run(func(tx pgx.Tx) error {
			var b pgx.Batch
			b.Queue(`SELECT 1`)
			b.Queue(lock, []uuid.UUID{first})
			return tx.SendBatch(ctx, &b).Close()
		}),
	}
	for _, err := range inVain {
		if !postgres.IsLockTimeout(err) {
			t.Errorf("a locked row: %v", err)
		}
	}
	if err := run(func(tx pgx.Tx) error { // it does not wait
		_, err := tx.Exec(ctx, lock+" SKIP LOCKED", []uuid.UUID{first, second})
		return err
	}); err != nil {
		t.Error(err)
	}
	var b pgx.Batch // a transaction of its own
	b.Queue(`SELECT FROM jobs WHERE id = $1 FOR UPDATE`, first)
	if err := db.SendBatch(ctx, &b).Close(); err != nil {
		t.Error(err)
	}
	for series, want := range map[string]float64{
		"lock_wait_seconds=wallets": waited + 2, "lock_wait_seconds=campaigns": 0, "lock_wait_seconds=other": 1,
		"lock_timeouts_total=sweep": 2, "lock_timeouts_total=other": 0, "deadlocks_total=sweep": 0,
		"transaction_duration_seconds=sweep": 4, "transaction_duration_seconds=purchase": 0,
	} {
		if got := metric(series); got != want {
			t.Errorf("%s is %v, want %v", series, got, want)
		}
	}
}

func TestADeadlockCountsForItsTransaction(t *testing.T) {
	t.Parallel()
	db, metric := measured(t, 4)
	ids := []uuid.UUID{fixture.Wallet(t, db, "ada", 0), fixture.Wallet(t, db, "bob", 0)}
	var hasFirst, both sync.WaitGroup
	hasFirst.Add(2)
	for i := range ids {
		both.Go(func() {
			_ = postgres.InTx(postgres.As(t.Context(), postgres.TxWallet), db, func(tx pgx.Tx) error { // one of them fails
				servers.Exec(t, tx, `SET LOCAL lock_timeout = 0`)
				servers.Exec(t, tx, `SELECT FROM wallets WHERE id = $1 FOR NO KEY UPDATE`, ids[i])
				hasFirst.Done()
				hasFirst.Wait()
				_, err := tx.Exec(postgres.As(t.Context(), postgres.TxWallet), `SELECT FROM wallets WHERE id = $1 FOR NO KEY UPDATE`, ids[1-i])
				return err
			})
		})
	}
	both.Wait()
	if n := metric("deadlocks_total=wallet"); n != 1 {
		t.Errorf("%v deadlocks are counted", n)
	}
}
