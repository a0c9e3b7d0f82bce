package wallet_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/fault"
	"triprize/internal/job"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/internal/wallet"
)

// newBatcher returns a batcher whose executor waits for a wallet as usual; commands
// that found theirs locked wait for as long as the test lasts.
func newBatcher(t *testing.T, db *pgxpool.Pool) *wallet.Batcher {
	t.Helper()
	settings := servers.Settings(t).Wallets
	settings.Timeout = servers.Patience
	b := wallet.NewBatcher(wallet.NewExecutor(db, documents, wallet.Options{}), settings)
	b.SetRowWait(servers.Patience)
	t.Cleanup(b.Close)
	return b
}

func TestACommandOnALockedWalletWaitsAndDelaysNoOther(t *testing.T) {
	db, at := executing(t)
	b := newBatcher(t, db)
	stuck := made(t, at, 100)
	unlock := fixture.LockWallet(t, db, stuck)
	ended := make(chan job.Done, 1)
	go func() {
		done, err := b.Do(t.Context(), command(wallet.Action{Kind: wallet.KindCredit, Wallet: stuck, Movement: amount(1)}))
		if done.Err == nil {
			done.Err = err
		}
		ended <- done
	}()
	servers.AwaitBlocked(t, db, 1)
	inTime, cancel := context.WithTimeout(t.Context(), servers.Patience/2) // the one that waits does so for longer
	defer cancel()
	for range 16 { // in every shard
		free := made(t, at, 100)
		for range 3 {
			if done, err := b.Do(inTime, command(wallet.Action{Kind: wallet.KindCredit, Wallet: free, Movement: amount(1)})); err != nil || done.Err != nil {
				t.Fatalf("while another wallet is locked: %v, %v", done.Err, err)
			}
		}
		expect(t, db, free, 103, 0, 4)
	}
	select {
	case done := <-ended:
		t.Fatalf("while it is locked: %+v", done)
	default:
	}
	unlock()
	if done := <-ended; done.Err != nil || done.Job.Problem != nil {
		t.Errorf("when it was free: %+v", done)
	}
	expect(t, db, stuck, 101, 0, 2)
	fixture.Sound(t, db)
}

// While a transfer waits for one of its wallets, others can use the other one.
func TestATransferThatWaitsHasLockedNothing(t *testing.T) {
	db, at := executing(t)
	a, b := made(t, at, 100), made(t, at, 100) // the first is locked first: a transfer locks by id
	unlock := fixture.LockWallet(t, db, b)
	transfer := command(wallet.Action{Kind: wallet.KindTransfer, Wallet: a, To: b, Movement: amount(1)})
	ended := make(chan error, 1)
	go func() {
		done, err := at.Retry(t.Context(), []wallet.Command{transfer}, servers.Patience)
		if err == nil {
			err = done[0].Err
		}
		ended <- err
	}()
	servers.AwaitBlocked(t, db, 1)
	servers.Exec(t, db, `SELECT FROM wallets WHERE id = $1 FOR UPDATE NOWAIT`, a)
	unlock()
	if err := <-ended; err != nil {
		t.Errorf("when it was free: %v", err)
	}
	expect(t, db, a, 99, 0, 2)
	expect(t, db, b, 101, 0, 2)
	fixture.Sound(t, db)
}

func TestTheWaitForALockedWalletIsBoundedAndLeavesTheKeyFree(t *testing.T) {
	db, at := executing(t)
	stuck := made(t, at, 100)
	unlock := fixture.LockWallet(t, db, stuck)
	settings := servers.Settings(t).Wallets
	settings.Timeout = 300 * time.Millisecond
	b := wallet.NewBatcher(wallet.NewExecutor(db, documents, wallet.Options{}), settings)
	t.Cleanup(b.Close)
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

func TestAWalletThatStaysLockedFailsItsOwnCommandsOnly(t *testing.T) {
	db, at := executing(t)
	stuck, free := made(t, at, 100), made(t, at, 100)
	unlock := fixture.LockWallet(t, db, stuck)
	batch := []wallet.Command{
		keyed("1", wallet.Action{Kind: wallet.KindCredit, Wallet: stuck, Movement: amount(1)}),
		keyed("2", wallet.Action{Kind: wallet.KindCredit, Wallet: free, Movement: amount(1)}),
		keyed("3", wallet.Action{Kind: wallet.KindTransfer, Wallet: free, To: stuck, Movement: amount(1)}),
	}
	for i, d := range do(t, wallet.NewExecutor(db, documents, wallet.Options{}), batch...) {
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
