package wallet_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/internal/wallet"
)

func TestTheSweepGivesBackWhatIsOverAndPassesOverBusyWallets(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	at := newExecutor(db)
	var ids []uuid.UUID
	for range 5 {
		id := made(t, at, 100)
		ids = append(ids, id)
		do(t, at, command(wallet.Action{Kind: wallet.KindAuthorize, Wallet: id, TTL: time.Hour, Movement: amount(30)}), command(wallet.Action{Kind: wallet.KindAuthorize, Wallet: id, TTL: time.Hour, Movement: amount(20)}))
	}
	for _, id := range ids[:4] {
		lapse(t, db, id)
	}
	err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
		if _, err := wallet.Open(t.Context(), tx, wallet.Wanted{Wallets: ids[:1]}, postgres.WaitForLocks); err != nil {
			return err
		}
		if n, err := at.Expire(t.Context(), nil, 100); err != nil || n.Authorizations != 6 || len(n.Visited) != 4 || n.PassedOver != 1 {
			t.Errorf("%+v expired, %v", n, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, db, ids[0], 100, 50, 3)
	expired := make([]int, 6)
	together(len(expired), func(i int) {
		done, err := at.Expire(t.Context(), nil, 100)
		if expired[i] = done.Authorizations; err != nil {
			t.Error(err)
		}
	})
	if slices.Sort(expired); expired[5] > 2 || sum(expired) != 2 {
		t.Errorf("many at once expired %v", expired)
	}
	expect(t, db, ids[0], 100, 0, 5)
	expect(t, db, ids[4], 100, 50, 3)
	if n, err := at.Expire(t.Context(), nil, 100); err != nil || n.Authorizations != 0 {
		t.Errorf("%+v expired, %v", n, err)
	}
	fixture.Sound(t, db)
}

func sum(of []int) (n int) {
	for _, i := range of {
		n += i
	}
	return n
}
