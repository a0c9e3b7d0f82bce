//go:build soak

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/job"
	"triprize/internal/testkit/fleet"
	"triprize/internal/testkit/servers"
)

// errand is one command that is sent, with its key, until somebody answers.
type errand struct {
	key, path string
	body      fleet.Fields
	moves     map[string]int64 // what it does to wallets (by path), if it is done
	user      string           // of a purchase

	answered fleet.Answer
}

// errands are many clients who move money while all goes wrong around them.
type errands struct {
	s       *fleet.System
	wallets []string
	initial int64
	all     [][]*errand // by client

	mu   sync.Mutex
	lost int // requests without an answer
	held int // answers that say: later
	done int
	wg   sync.WaitGroup
}

func newErrands(s *fleet.System, campaign uuid.UUID, clients, each int) *errands {
	e := &errands{s: s, initial: 12_000}
	for i := range 6 {
		e.wallets = append(e.wallets, s.Wallet(fmt.Sprint("user-", i), e.initial))
	}
	for c := range clients {
		var mine []*errand
		for n := range each {
			from, to := e.wallets[(c+n)%6], e.wallets[(c+n+1+n%5)%6]
			one := &errand{key: fmt.Sprintf("errand-%d-%d", c, n)}
			switch n % 4 {
			case 0:
				one.path, one.body, one.moves = from+"/credit", fleet.Fields{"amount": 10 + n}, map[string]int64{from: int64(10 + n)}
			case 1:
				one.path, one.body, one.moves = from+"/debit", fleet.Fields{"amount": 20 + n}, map[string]int64{from: -int64(20 + n)}
			case 2:
				one.path, one.body = "/v1/transfers", fleet.Fields{"from": fleet.WalletID(from), "to": fleet.WalletID(to), "amount": 30 + n}
				one.moves = map[string]int64{from: -int64(30 + n), to: int64(30 + n)}
			default:
				one.user = fmt.Sprint("user-", (c+n)%6)
				one.path = "/v1/campaigns/" + campaign.String() + "/purchases"
				one.body = fleet.Fields{"user_id": one.user, "selection": fleet.Fields{"quantity": 1}, "payment": fleet.Fields{"method": "wallet"}}
				one.moves = map[string]int64{from: 0} // what it costs, its job will say
			}
			mine = append(mine, one)
		}
		e.all = append(e.all, mine)
	}
	return e
}

// run starts the clients' errands from one number to another.
func (e *errands) run(from, to int) {
	for c, mine := range e.all {
		e.wg.Go(func() {
			for n, one := range mine[from:to] {
				e.send(one, c+n)
			}
		})
	}
}

// send repeats an errand until it is answered for good.
func (e *errands) send(one *errand, api int) {
	for try := 0; e.s.T.Context().Err() == nil; try++ {
		a := e.s.ExecuteAt(api+try, one.path, one.body, "Idempotency-Key", one.key)
		e.mu.Lock()
		switch {
		case a.Err != nil:
			e.lost++
		case a.Status == http.StatusServiceUnavailable:
			e.held++
		default:
			one.answered = a
			e.done++
			e.mu.Unlock()
			return
		}
		e.mu.Unlock()
		time.Sleep(20 * time.Millisecond)
	}
}

// count returns how many errands were answered.
func (e *errands) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.done
}

// settled replaces what was answered to purchases by what became of them, and
// tells whether all are final.
func (e *errands) settled() bool {
	final := true
	for _, mine := range e.all {
		for _, one := range mine {
			if one.user == "" || one.answered.Status >= 300 || one.answered.State.Final() { // a wallet's, refused without a job, final
				continue
			}
			if a := e.s.ExecuteAt(0, one.path, one.body, "Idempotency-Key", one.key); a.Err == nil && a.ID == one.answered.ID && a.State != "" {
				one.answered = a
			}
			final = final && one.answered.State.Final()
		}
	}
	return final
}

// check wants every wallet to be what the answers say, every errand to be done
// once, and the same answer to every repetition.
func (e *errands) check() {
	want, got := make(map[string]int64), make(map[string]int)
	for _, path := range e.wallets {
		want[path] = e.initial
	}
	for _, mine := range e.all {
		for _, one := range mine {
			a := one.answered
			got[fmt.Sprint(a.Status, " ", a.State, " ", a.Refusal())]++
			again := e.s.ExecuteAt(0, one.path, one.body, "Idempotency-Key", one.key)
			if again.Status != a.Status || a.Status < 300 && one.user == "" && string(again.Body) != string(a.Body) || again.Refusal() != a.Refusal() {
				e.s.T.Errorf("%s: %v %s, and when asked again %v %s", one.key, a, a.Body, again, again.Body)
			}
			if a.Status >= 300 || one.user != "" && a.State != job.Succeeded {
				if a.Refusal() != "insufficient-funds" && a.Refusal() != "sold-out" {
					e.s.T.Errorf("%s: %v %s", one.key, a, a.Body)
				}
				continue
			}
			for path, amount := range one.moves {
				if one.user != "" {
					amount = -a.Result.Amount
				}
				want[path] += amount
			}
		}
	}
	for path, balance := range want {
		e.s.ExpectWallet(path, balance, 0)
	}
	if ledger, purchases := e.s.Sales(); ledger != purchases {
		e.s.T.Errorf("the ledger has sold for %d, the purchases cost %d", ledger, purchases)
	}
	e.s.T.Logf("%d requests got no answer, %d were told to retry; in the end %v", e.lost, e.held, got)
	if e.lost == 0 {
		e.s.T.Error("no client lost its answer: the test does not test")
	}
}

func TestEveryKeyMovesMoneyOnceWhoeverIsKilled(t *testing.T) {
	for moment, apiDies := range map[string]bool{"wallets.written": true, "wallets.committed": true, "sale.commit": false, "sale.committed": false} {
		t.Run(moment, func(t *testing.T) {
			t.Parallel()
			s := fleet.Start(t, fleet.Options{Binaries: true, APIs: 2, Workers: -1})
			id := s.Campaign(20)
			e := newErrands(s, id, 8, 24)
			kill := "TRIPRIZE_TEST_FAILPOINTS=" + moment + "=kill"
			doomed := s.APIs[1]
			if apiDies {
				doomed = s.RunAPI(kill)
				s.RunWorker()
			} else {
				doomed = s.RunWorker(kill)
			}
			e.run(0, 12)
			servers.Eventually(t, "it dies", func() bool { return doomed.PID() == 0 })
			e.wg.Wait()
			if !apiDies {
				s.APIs[1].Kill() // it gives no answers to the other half
				s.RunWorker()
			}
			e.run(12, 24)
			e.wg.Wait()
			s.URLs = s.URLs[:1] // those that live
			servers.Eventually(t, "every purchase is final", e.settled)
			e.check()
		})
	}
}

func TestEveryKeyMovesMoneyOnceThroughOutages(t *testing.T) {
	t.Parallel()
	s := fleet.Start(t, fleet.Options{Binaries: true, Private: true, APIs: 3, Workers: 2})
	id := s.Campaign(20)
	e := newErrands(s, id, 8, 40)
	e.run(0, 40)
	after := func(share int, do func() error) {
		t.Helper()
		servers.Eventually(t, "the errands go on", func() bool { return e.count() >= 320*share/10 })
		servers.NoError(t, do())
	}
	after(1, func() error { return s.Redis.FlushAll(t.Context()).Err() })
	after(2, func() error { s.APIs[2].Kill(); s.Workers[0].Kill(); return nil })
	after(3, func() error { return s.Stack.Postgres.RestartAfter(context.Background(), time.Second) })
	after(5, func() error { return s.Redis.FlushAll(t.Context()).Err() })
	after(6, func() error { return s.Stack.Redis.RestartAfter(context.Background(), time.Second) })
	after(8, func() error { return s.Stack.Postgres.RestartAfter(context.Background(), 0) })
	e.wg.Wait()
	s.URLs = s.URLs[:2] // those that live
	servers.Eventually(t, "every purchase is final", e.settled)
	e.check()
}
