package httpapi_test

import (
	"fmt"
	"net/http"
	"testing"

	"triprize/internal/testkit/fleet"
)

// inBothWays runs a test of two APIs with and without locks in Redis: they spare
// waiting, and decide nothing. The end of the shared system tells of deadlocks.
func inBothWays(t *testing.T, test func(t *testing.T, s *fleet.System)) {
	for name, locks := range map[string]bool{"with locks": true, "without locks": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := fleet.Shared(t, quiet)
			if !locks {
				const without = "TRIPRIZE_LOCKS_ENABLED=false"
				s = s.With(without)
				s.RunAPI(without)
			}
			test(t, s)
		})
	}
}

func TestConcurrentCreditsAllCount(t *testing.T) {
	t.Parallel()
	inBothWays(t, func(t *testing.T, s *fleet.System) {
		mina := s.Wallet(s.User("mina"), 0)
		fleet.Together(2, func(i int) {
			if a := s.ExecuteAt(i, mina+"/credit", fleet.Fields{"amount": 100}); a.Status != http.StatusOK {
				t.Errorf("%v %s", a, a.Body)
			}
		})
		s.ExpectWallet(mina, 200, 0)
		seen := make([]int64, 1000)
		fleet.Together(len(seen), func(i int) {
			a := s.ExecuteUntilDone(i, mina+"/credit", fleet.Fields{"amount": 3})
			if a.Status != http.StatusOK {
				t.Errorf("%v %s", a, a.Body)
				return
			}
			seen[i] = fleet.As[fleet.WalletView](t, a).Balance
		})
		if w := s.ExpectWallet(mina, 3200, 0); w.Version != 1002 {
			t.Errorf("%d events", w.Version)
		}
		once := make(map[int64]bool)
		for _, balance := range seen {
			if once[balance] || (balance-200)%3 != 0 {
				t.Errorf("two were told that they left %d", balance)
			}
			once[balance] = true
		}
	})
}

func TestOfTwoDebitsOfTheWholeBalanceOnAPIsOfTheirOwnOneWins(t *testing.T) {
	t.Parallel()
	inBothWays(t, func(t *testing.T, s *fleet.System) {
		for round := range 10 {
			wallet := s.Wallet(s.User(fmt.Sprint("user-", round)), 100)
			answers := make([]fleet.Answer, 2)
			fleet.Together(2, func(i int) { answers[i] = s.ExecuteAt(i, wallet+"/debit", fleet.Fields{"amount": 100}) })
			if answers[0].Status != http.StatusOK {
				answers[0], answers[1] = answers[1], answers[0]
			}
			if answers[0].Status != http.StatusOK {
				t.Errorf("%v and %v", answers[0], answers[1])
			}
			refused(t, "the other one", answers[1], 409, "insufficient-funds")
			s.ExpectWallet(wallet, 0, 0)
		}
	})
}

func TestCrossingTransfersOfManyNeverDeadlock(t *testing.T) {
	t.Parallel()
	inBothWays(t, func(t *testing.T, s *fleet.System) {
		const wallets = 6
		var paths [wallets]string
		for i := range paths {
			paths[i] = s.Wallet(s.User(fmt.Sprint("user-", i)), 1000)
		}
		fleet.Together(60, func(i int) {
			for n := range 10 {
				from, to := (i+n)%wallets, (i+n+1+n%(wallets-1))%wallets
				if i%2 == 1 {
					from, to = to, from
				}
				a := s.ExecuteUntilDone(i, "/v1/transfers", fleet.Fields{"from": fleet.WalletID(paths[from]), "to": fleet.WalletID(paths[to]), "amount": 1 + n})
				if a.Status != http.StatusCreated && a.Refusal() != "insufficient-funds" {
					t.Errorf("%v %s", a, a.Body)
				}
			}
		})
		var sum int64
		for _, path := range paths {
			sum += fleet.As[fleet.WalletView](t, s.Read(path)).Balance
		}
		if sum != wallets*1000 {
			t.Errorf("%d are left of %d", sum, wallets*1000)
		}
	})
}
