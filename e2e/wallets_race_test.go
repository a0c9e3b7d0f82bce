package e2e

import (
	"fmt"
	"net/http"
	"testing"
)

// inBothWays runs a test of two APIs with and without locks in Redis: they spare
// waiting, and decide nothing.
func inBothWays(t *testing.T, test func(t *testing.T, s *system)) {
	for name, env := range map[string][]string{"with locks": nil, "without locks": {"TRIPRIZE_LOCKS_ENABLED=false"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, options{apis: 2, workers: -1, schedulers: -1, env: env})
			test(t, s)
			var deadlocks int
			if err := s.db.QueryRow(t.Context(), `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`).Scan(&deadlocks); err != nil || deadlocks != 0 {
				t.Errorf("%d deadlocks, %v", deadlocks, err)
			}
		})
	}
}

func TestConcurrentCreditsAllCount(t *testing.T) {
	t.Parallel()
	inBothWays(t, func(t *testing.T, s *system) {
		mina := s.wallet("mina", 0)
		together(2, func(i int) {
			if a := s.tellAt(i, mina+"/credit", fields{"amount": 100}); a.status != http.StatusOK {
				t.Errorf("%v %s", a, a.body)
			}
		})
		s.expectWallet(mina, 200, 0)
		seen := make([]int64, 1000)
		together(len(seen), func(i int) {
			a := s.tellAt(i, mina+"/credit", fields{"amount": 3})
			if a.status != http.StatusOK {
				t.Errorf("%v %s", a, a.body)
				return
			}
			seen[i] = as[walletView](t, a).Balance
		})
		if w := s.expectWallet(mina, 3200, 0); w.Version != 1002 {
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
	inBothWays(t, func(t *testing.T, s *system) {
		for round := range 10 {
			wallet := s.wallet(fmt.Sprint("user-", round), 100)
			answers := make([]answer, 2)
			together(2, func(i int) { answers[i] = s.tellAt(i, wallet+"/debit", fields{"amount": 100}) })
			if answers[0].status != http.StatusOK {
				answers[0], answers[1] = answers[1], answers[0]
			}
			if answers[0].status != http.StatusOK {
				t.Errorf("%v and %v", answers[0], answers[1])
			}
			refused(t, "the other one", answers[1], 409, "insufficient-funds")
			s.expectWallet(wallet, 0, 0)
		}
	})
}

func TestCrossingTransfersOfManyNeverDeadlock(t *testing.T) {
	t.Parallel()
	inBothWays(t, func(t *testing.T, s *system) {
		const wallets = 6
		var paths [wallets]string
		for i := range paths {
			paths[i] = s.wallet(fmt.Sprint("user-", i), 1000)
		}
		together(60, func(i int) {
			for n := range 10 {
				from, to := (i+n)%wallets, (i+n+1+n%(wallets-1))%wallets
				if i%2 == 1 {
					from, to = to, from
				}
				a := s.tellAt(i, "/v1/transfers", fields{"from": walletID(paths[from]), "to": walletID(paths[to]), "amount": 1 + n})
				if a.status != http.StatusCreated && a.code() != "insufficient-funds" {
					t.Errorf("%v %s", a, a.body)
				}
			}
		})
		var sum int64
		for _, path := range paths {
			sum += as[walletView](t, s.see(path)).Balance
		}
		if sum != wallets*1000 {
			t.Errorf("%d are left of %d", sum, wallets*1000)
		}
	})
}
