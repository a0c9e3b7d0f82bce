package e2e

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/store/job"
)

// errand is one command that is sent, with its key, until somebody answers.
type errand struct {
	key, path string
	body      fields
	moves     map[string]int64 // what it does to wallets (by path), if it is done
	user      string           // of a purchase

	answered answer
}

// errands are many clients who move money while all goes wrong around them.
type errands struct {
	s       *system
	wallets []string
	initial int64
	all     [][]*errand // by client

	mu   sync.Mutex
	lost int // requests without an answer
	held int // answers that say: later
	done int
	wg   sync.WaitGroup
}

func (s *system) newErrands(campaign uuid.UUID, clients, each int) *errands {
	e := &errands{s: s, initial: 12_000}
	for i := range 6 {
		e.wallets = append(e.wallets, s.wallet(fmt.Sprint("user-", i), e.initial))
	}
	for c := range clients {
		var mine []*errand
		for n := range each {
			from, to := e.wallets[(c+n)%6], e.wallets[(c+n+1+n%5)%6]
			one := &errand{key: fmt.Sprintf("errand-%d-%d", c, n)}
			switch n % 4 {
			case 0:
				one.path, one.body, one.moves = from+"/credit", fields{"amount": 10 + n}, map[string]int64{from: int64(10 + n)}
			case 1:
				one.path, one.body, one.moves = from+"/debit", fields{"amount": 20 + n}, map[string]int64{from: -int64(20 + n)}
			case 2:
				one.path, one.body = "/v1/transfers", fields{"from": walletID(from), "to": walletID(to), "amount": 30 + n}
				one.moves = map[string]int64{from: -int64(30 + n), to: int64(30 + n)}
			default:
				one.user = fmt.Sprint("user-", (c+n)%6)
				one.path = "/v1/campaigns/" + campaign.String() + "/purchases"
				one.body = fields{"user_id": one.user, "selection": fields{"quantity": 1}, "payment": fields{"method": "wallet"}}
				one.moves = map[string]int64{from: 0} // what it costs, its job will say
			}
			mine = append(mine, one)
		}
		e.all = append(e.all, mine)
	}
	return e
}

func (e *errands) run() {
	for c, mine := range e.all {
		e.wg.Go(func() {
			for n, one := range mine {
				e.send(one, c+n)
			}
		})
	}
}

// send repeats an errand until it is answered for good.
func (e *errands) send(one *errand, api int) {
	for try := 0; e.s.t.Context().Err() == nil; try++ {
		a := e.s.tellAt(api+try, one.path, one.body, "Idempotency-Key", one.key)
		e.mu.Lock()
		switch {
		case a.err != nil:
			e.lost++
		case a.status == http.StatusServiceUnavailable:
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
			if one.user == "" || one.answered.State.Final() {
				continue
			}
			if a := e.s.tellAt(0, one.path, one.body, "Idempotency-Key", one.key); a.err == nil && a.ID == one.answered.ID && a.State != "" {
				one.answered = a
			}
			final = final && one.answered.State.Final()
		}
	}
	return final
}

// check wants every wallet to be what the answers say, every errand to be done
// once, and the same answer to whoever asks again.
func (e *errands) check() {
	want, got := make(map[string]int64), make(map[string]int)
	for _, path := range e.wallets {
		want[path] = e.initial
	}
	for _, mine := range e.all {
		for _, one := range mine {
			a := one.answered
			got[fmt.Sprint(a.status, " ", a.State, " ", a.code())]++
			again := e.s.tellAt(0, one.path, one.body, "Idempotency-Key", one.key)
			if again.status != a.status || a.status < 300 && one.user == "" && string(again.body) != string(a.body) || again.code() != a.code() {
				e.s.t.Errorf("%s: %v %s, and when asked again %v %s", one.key, a, a.body, again, again.body)
			}
			if a.status >= 300 || one.user != "" && a.State != job.Succeeded {
				if a.code() != "insufficient-funds" && a.code() != "sold-out" {
					e.s.t.Errorf("%s: %v %s", one.key, a, a.body)
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
		e.s.expectWallet(path, balance, 0)
	}
	if ledger, purchases := e.s.sales(); ledger != purchases {
		e.s.t.Errorf("the ledger has sold for %d, the purchases cost %d", ledger, purchases)
	}
	e.s.t.Logf("%d requests got no answer, %d were told to retry; in the end %v", e.lost, e.held, got)
	if e.lost == 0 {
		e.s.t.Error("no client lost its answer: the test does not test")
	}
}

func TestEveryKeyMovesMoneyOnceWhoeverIsKilled(t *testing.T) {
	for moment, apiDies := range map[string]bool{"wallets.written": true, "wallets.committed": true, "sale.commit": false, "sale.committed": false} {
		t.Run(moment, func(t *testing.T) {
			t.Parallel()
			s := start(t, options{apis: 2, workers: -1})
			id := s.campaign(20)
			e := s.newErrands(id, 8, 24)
			kill := "TRIPRIZE_TEST_FAILPOINTS=" + moment + "=kill"
			doomed := s.APIs[1]
			if apiDies {
				doomed = s.startAPI(kill)
				s.startWorker()
			} else {
				doomed = s.startWorker(kill)
			}
			e.run()
			eventually(t, 20*time.Second, "it dies", func() bool { return doomed.PID() == 0 })
			if !apiDies {
				s.APIs[1].Kill()
				s.startWorker()
			}
			e.wg.Wait()
			s.urls = s.urls[:1] // those that live
			eventually(t, 30*time.Second, "every purchase is final", e.settled)
			e.check()
		})
	}
}

func TestEveryKeyMovesMoneyOnceThroughOutages(t *testing.T) {
	t.Parallel()
	s := start(t, options{private: true, apis: 3, workers: 2})
	id := s.campaign(20)
	e := s.newErrands(id, 8, 40)
	e.run()
	after := func(share int, do func() error) {
		t.Helper()
		eventually(t, 30*time.Second, "the errands go on", func() bool { return e.count() >= 320*share/10 })
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	after(1, func() error { return s.rdb.FlushAll(t.Context()).Err() })
	after(2, func() error { s.APIs[2].Kill(); s.Workers[0].Kill(); return nil })
	after(3, func() error { return s.stack.Postgres.RestartAfter(context.Background(), time.Second) })
	after(5, func() error { return s.rdb.FlushAll(t.Context()).Err() })
	after(6, func() error { return s.stack.Redis.RestartAfter(context.Background(), time.Second) })
	after(8, func() error { return s.stack.Postgres.RestartAfter(context.Background(), 0) })
	e.wg.Wait()
	s.urls = s.urls[:2] // those that live
	eventually(t, 60*time.Second, "every purchase is final", e.settled)
	e.check()
}
