package httpapi_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/job"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/fleet"
)

// A transaction that has a wallet locked for long holds up what that wallet pays, and nothing else.
func TestABusyWalletHoldsUpItsOwnPurchaseOnly(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Workers: 2})
	id, other := s.Campaign(20), s.Campaign(20)
	mina := s.Wallet("mina", 100_000)
	s.Wallet("otto", 1_000_000)
	unlock := fixture.LockWallet(t, s.DB, uuid.MustParse(fleet.WalletID(mina)))
	hers := s.Buy(fleet.Order{Campaign: id, User: "mina", ByWallet: true})
	if hers.Status != http.StatusAccepted {
		t.Fatalf("%v", hers)
	}
	for n := range 60 { // while it stays locked
		o := fleet.Order{Campaign: id, User: fmt.Sprint("buyer-", n), Wait: true}
		switch n % 3 {
		case 1:
			o.User, o.ByWallet = "otto", true
		case 2:
			o.Campaign = other
		}
		if a := s.Buy(o); a.State != job.Succeeded {
			t.Errorf("another: %v %s", a, a.Body)
		}
	}
	if a := s.Job(hers.ID); a.State != job.Queued {
		t.Errorf("her purchase is %v", a)
	}
	unlock()
	if a := s.AwaitJob(0, hers.ID); a.State != job.Succeeded {
		t.Errorf("when it was free: %v", a)
	}
	if left := fleet.As[fleet.WalletView](t, s.Read(mina)).Balance; left >= 100_000 {
		t.Errorf("%d are left", left)
	}
}
