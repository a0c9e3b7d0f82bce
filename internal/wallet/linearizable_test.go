package wallet_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/google/uuid"

	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/internal/wallet"
)

// purse is a wallet of the sequential specification.
type purse struct {
	balance money.Amount
	version int64
}

// step is what one client asked of two purses: credit, debit and read concern
// from, transfer both.
type step struct {
	kind     string
	from, to int
	amount   money.Amount
}

// outcome is what it was told: whether it was done, and what the purse then had
// (a transfer's answer does not say).
type outcome struct {
	refused bool
	purse   purse
}

// spec is two purses that do one step at a time.
var spec = porcupine.Model{
	Init: func() any { return [2]purse{} },
	Step: func(state, input, output any) (bool, any) {
		now, in, out := state.([2]purse), input.(step), output.(outcome)
		if take := in.kind == "debit" || in.kind == "transfer"; take && now[in.from].balance < in.amount || out.refused {
			return out.refused && take && now[in.from].balance < in.amount, now
		}
		switch in.kind {
		case "credit":
			now[in.from] = purse{now[in.from].balance + in.amount, now[in.from].version + 1}
		case "debit":
			now[in.from] = purse{now[in.from].balance - in.amount, now[in.from].version + 1}
		case "transfer":
			now[in.from] = purse{now[in.from].balance - in.amount, now[in.from].version + 1}
			now[in.to] = purse{now[in.to].balance + in.amount, now[in.to].version + 1}
			return true, now
		}
		return out.purse == now[in.from], now
	},
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v: %+v", in, out) },
}

// What concurrent clients are told could have been told by an executor that serves
// one at a time, each between its request and its answer.
func TestAConcurrentHistoryIsLinearizable(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	at := newExecutor(db)
	ids := [2]uuid.UUID{made(t, at, 0), made(t, at, 0)}
	start := time.Now()
	var mu sync.Mutex
	var history []porcupine.Operation
	together(6, func(client int) {
		random := rand.New(rand.NewPCG(uint64(client), 7))
		for range 25 {
			steps := make([]step, 1+random.IntN(2)) // alone, or in a batch
			for i := range steps {
				from := random.IntN(2)
				steps[i] = step{[]string{"credit", "debit", "debit", "transfer", "read"}[random.IntN(5)], from, 1 - from, money.Amount(1 + random.Int64N(9))}
			}
			if steps[0].kind == "read" {
				steps = steps[:1]
			}
			call := time.Since(start).Nanoseconds()
			outcomes := carryOut(t, at, db, ids, steps)
			back := time.Since(start).Nanoseconds()
			mu.Lock()
			for i := range outcomes {
				history = append(history, porcupine.Operation{ClientId: client*2 + i, Input: steps[i], Call: call, Output: outcomes[i], Return: back})
			}
			mu.Unlock()
		}
	})
	if result := porcupine.CheckOperationsTimeout(spec, history, servers.Patience); result != porcupine.Ok {
		t.Errorf("the history of %d steps is %s", len(history), result)
	}
	fixture.Sound(t, db)
}

// The checker must find a history that no single executor could have told.
func TestALostUpdateIsNotLinearizable(t *testing.T) {
	t.Parallel()
	history := []porcupine.Operation{
		{ClientId: 0, Input: step{kind: "credit", amount: 5}, Call: 0, Output: outcome{purse: purse{5, 1}}, Return: 10},
		{ClientId: 1, Input: step{kind: "credit", amount: 5}, Call: 0, Output: outcome{purse: purse{5, 1}}, Return: 10},
	}
	if porcupine.CheckOperations(spec, history) {
		t.Error("both credits say that they were the first")
	}
}

func carryOut(t *testing.T, at *wallet.Executor, db postgres.DB, ids [2]uuid.UUID, steps []step) []outcome {
	if steps[0].kind == "read" {
		w, err := wallet.Get(t.Context(), db, access.Everything(), ids[steps[0].from])
		if err != nil {
			t.Error(err)
		}
		return []outcome{{purse: purse{w.Balance, w.Version}}}
	}
	var batch []wallet.Command
	for _, s := range steps {
		switch s.kind {
		case "credit":
			batch = append(batch, command(wallet.Action{Kind: wallet.KindCredit, Wallet: ids[s.from], Movement: amount(s.amount)}))
		case "debit":
			batch = append(batch, command(wallet.Action{Kind: wallet.KindDebit, Wallet: ids[s.from], Movement: amount(s.amount)}))
		case "transfer":
			batch = append(batch, command(wallet.Action{Kind: wallet.KindTransfer, Wallet: ids[s.from], To: ids[s.to], Movement: amount(s.amount)}))
		}
	}
	done, err := at.Do(t.Context(), batch)
	if err != nil {
		t.Error(err)
		return nil
	}
	outcomes := make([]outcome, len(done))
	for i, d := range done {
		switch code := codeOf(d); {
		case code == fault.InsufficientFunds:
			outcomes[i].refused = true
		case code != "":
			t.Errorf("%+v: %s", steps[i], code)
		case steps[i].kind != "transfer":
			w := read[walletDocument](t, d)
			outcomes[i].purse = purse{w.Balance, w.Version}
		}
	}
	return outcomes
}
