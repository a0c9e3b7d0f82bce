package wallet_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/fault"
	"triprize/internal/job"
	"triprize/internal/platform/config"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/internal/wallet"
)

// newBatcher returns a batcher whose commands wait for a locked wallet at most for timeout.
func newBatcher(t *testing.T, db *pgxpool.Pool, timeout time.Duration) *wallet.Batcher {
	t.Helper()
	settings := servers.Settings(t).Wallets
	settings.Timeout = timeout
	b := wallet.NewBatcher(wallet.NewExecutor(db, db, documents), settings)
	t.Cleanup(b.Close)
	return b
}

// A transfer waits for one of its wallets: others use the other one.
func TestCommandsOnALockedWalletWaitAndDelayNoOther(t *testing.T) {
	db, at := executing(t)
	b := newBatcher(t, db, servers.Patience)
	stuck, payer := made(t, at, 100), made(t, at, 100)
	unlock := fixture.LockWallet(t, db, stuck)
	ended := make(chan job.Accepted, 2)
	for _, action := range []wallet.Action{{Kind: wallet.KindCredit, Wallet: stuck, Movement: amount(1)}, {Kind: wallet.KindTransfer, Wallet: payer, To: stuck, Movement: amount(1)}} {
		go func() {
			done, err := b.Do(t.Context(), command(action))
			done.Err = errors.Join(done.Err, err)
			ended <- done
		}()
	}
	inTime, cancel := context.WithTimeout(t.Context(), servers.Patience/2) // those that wait do so for longer
	defer cancel()
	for i := range 17 { // in every shard
		free := payer
		if i > 0 {
			free = made(t, at, 100)
		}
		for range 3 {
			if done, err := b.Do(inTime, command(wallet.Action{Kind: wallet.KindCredit, Wallet: free, Movement: amount(1)})); err != nil || done.Err != nil {
				t.Fatalf("while another wallet is locked: %v, %v", done.Err, err)
			}
		}
		expect(t, db, free, 103, 0, 4)
	}
	if len(ended) > 0 {
		t.Fatalf("while it is locked: %+v", <-ended)
	}
	unlock()
	for range cap(ended) {
		if done := <-ended; done.Err != nil || done.Job.Problem != nil {
			t.Errorf("when it was free: %+v", done)
		}
	}
	expect(t, db, stuck, 102, 0, 3)
	fixture.Sound(t, db)
}

func TestTheWaitForALockedWalletIsBoundedAndLeavesTheKeyFree(t *testing.T) {
	db, at := executing(t)
	stuck := made(t, at, 100)
	unlock := fixture.LockWallet(t, db, stuck)
	b := newBatcher(t, db, 300*time.Millisecond)
	credit := command(wallet.Action{Kind: wallet.KindCredit, Wallet: stuck, Movement: amount(1)})
	if done, err := b.Do(t.Context(), credit); err == nil && fault.CodeOf(done.Err) != fault.Unavailable {
		t.Errorf("while it is locked: %+v", done)
	}
	unlock()
	if done := do(t, at, credit)[0]; done.Err != nil || done.Replayed || done.Job.Problem != nil {
		t.Errorf("again, when it was free: %+v", done)
	}
	expect(t, db, stuck, 101, 0, 2)
}

// counting counts the transactions of a pool.
type counting struct {
	*pgxpool.Pool
	begun atomic.Int64
}

// Begin implements postgres.Beginner.
func (c *counting) Begin(ctx context.Context) (pgx.Tx, error) {
	c.begun.Add(1)
	return c.Pool.Begin(ctx)
}

// They fill batches, which do not wait for more.
func TestManyCommandsOnALockedWalletAreRetriedWithPauses(t *testing.T) {
	db, at := executing(t)
	stuck, retry := made(t, at, 100), &counting{Pool: db}
	fixture.LockWallet(t, db, stuck)
	b := wallet.NewBatcher(wallet.NewExecutor(db, retry, documents), config.Wallets{Timeout: servers.Patience})
	t.Cleanup(b.Close)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	began := time.Now()
	go together(512, func(int) {
		_, _ = b.Do(ctx, command(wallet.Action{Kind: wallet.KindCredit, Wallet: stuck, Movement: amount(1)}))
	})
	servers.Eventually(t, "transactions retry", func() bool { return retry.begun.Load() >= 30 })
	if n, most := retry.begun.Load(), 10+int64(time.Since(began)/(50*time.Millisecond)); n > most {
		t.Errorf("%d transactions retried, want at most %d", n, most)
	}
}

func TestAWalletThatStaysLockedFailsItsOwnCommandsOnly(t *testing.T) {
	db, at := executing(t)
	stuck, free := made(t, at, 100), made(t, at, 100)
	unlock := fixture.LockWallet(t, db, stuck)
	batch := []wallet.Command{
		keyed("1", wallet.Action{Kind: wallet.KindCredit, Wallet: stuck, Movement: amount(1)}),
		keyed("2", wallet.Action{Kind: wallet.KindCredit, Wallet: free, Movement: amount(1)}),
		keyed("3", wallet.Action{Kind: wallet.KindTransfer, Wallet: free, To: stuck, Movement: amount(1)}),
	}
	for i, d := range do(t, wallet.NewExecutor(db, db, documents), batch...) {
		if want := []fault.Code{fault.Unavailable, "", fault.Unavailable}[i]; fault.CodeOf(d.Err) != want {
			t.Errorf("command %d while it is locked: %v", i, d.Err)
		}
	}
	expect(t, db, free, 101, 0, 2)
	unlock()
	for i, d := range do(t, at, batch...) { // with the same keys
		if codeOf(d) != "" {
			t.Errorf("command %d again: %+v", i, d)
		}
	}
	expect(t, db, free, 100, 0, 3)
	expect(t, db, stuck, 102, 0, 3)
	fixture.Sound(t, db)
}
