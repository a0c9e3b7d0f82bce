package e2e

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"triprize/internal/store/job"
)

// Whoever has a wallet locked for long holds up what that wallet pays, and nothing else.
func TestABusyWalletHoldsUpItsOwnPurchaseOnly(t *testing.T) {
	t.Parallel()
	s := start(t, options{workers: 2})
	id, other := s.campaign(20), s.campaign(20)
	mina := s.wallet("mina", 100_000)
	s.wallet("otto", 1_000_000)
	tx, err := s.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `SELECT FROM wallets WHERE id = $1 FOR NO KEY UPDATE`, walletID(mina)); err != nil {
		t.Fatal(err)
	}
	locked := time.Now()
	hers := s.buy(order{campaign: id, user: "mina", byWallet: true})
	if hers.status != http.StatusAccepted {
		t.Fatalf("%v", hers)
	}
	var worst, sum time.Duration
	n := 0
	for ; time.Since(locked) < 3*time.Second; n++ {
		begun := time.Now()
		o := order{campaign: id, user: fmt.Sprint("buyer-", n), wait: 20}
		switch n % 3 {
		case 1:
			o.user, o.byWallet = "otto", true
		case 2:
			o.campaign = other
		}
		if a := s.buy(o); a.State != job.Succeeded {
			t.Errorf("another: %v %s", a, a.body)
		}
		took := time.Since(begun)
		worst, sum = max(worst, took), sum+took
		time.Sleep(10 * time.Millisecond) // buyers that come one after the other
	}
	t.Logf("%d others, %s each, %s at worst", n, sum/time.Duration(n), worst)
	if sum/time.Duration(n) > 120*time.Millisecond { // as many wait when nobody rests between two waits
		t.Errorf("%d others were served in %s", n, sum)
	}
	if a := s.job(hers.ID); a.State != job.Queued {
		t.Errorf("her purchase is %v", a)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	free := time.Now()
	if a := s.awaitJob(0, hers.ID); a.State != job.Succeeded || time.Since(free) > 5*time.Second {
		t.Errorf("when it was free: %v, after %s", a, time.Since(free))
	}
	if left := as[walletView](t, s.see(mina)).Balance; left >= 100_000 {
		t.Errorf("%d are left", left)
	}
}
