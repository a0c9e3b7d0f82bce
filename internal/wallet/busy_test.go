package wallet_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/fault"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/internal/wallet"
)

func TestAWalletThatStaysLockedFailsItsOwnCommandsOnly(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	at := newExecutor(db)
	stuck, free := made(t, at, 100), made(t, at, 100)
	batch := []wallet.Command{
		keyed("1", wallet.Action{Kind: wallet.KindCredit, Wallet: stuck, Movement: amount(1)}),
		keyed("2", wallet.Action{Kind: wallet.KindCredit, Wallet: free, Movement: amount(1)}),
		keyed("3", wallet.Action{Kind: wallet.KindTransfer, Wallet: free, To: stuck, Movement: amount(1)}),
	}
	err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
		if _, err := wallet.Open(t.Context(), tx, wallet.Wanted{Wallets: []uuid.UUID{stuck}}, postgres.WaitForLocks); err != nil {
			return err
		}
		done, err := wallet.NewExecutor(db, documents, wallet.Options{}).Do(t.Context(), batch)
		if err != nil {
			t.Fatal(err)
		}
		if fault.CodeOf(done[0].Err) != fault.Unavailable || done[1].Err != nil || fault.CodeOf(done[2].Err) != fault.Unavailable {
			t.Errorf("while it is locked: %v, %v, %v", done[0].Err, done[1].Err, done[2].Err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, db, free, 101, 0, 2)
	for i, d := range do(t, at, batch...) { // with the same keys
		if d.Err != nil || d.Job.Problem != nil {
			t.Errorf("command %d again: %+v", i, d)
		}
	}
	expect(t, db, free, 100, 0, 3)
	expect(t, db, stuck, 102, 0, 3)
	fixture.Sound(t, db)
}
