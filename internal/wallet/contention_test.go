package wallet_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/internal/wallet"
)

// Batches over the same wallets, old and new, and the same keys, in opposite orders.
func TestOverlappingBatchesInOppositeOrderNeverDeadlock(t *testing.T) {
	db, at := executing(t)
	const count, rounds = 12, 6
	var ids []uuid.UUID
	for range count {
		ids = append(ids, made(t, at, 100))
	}
	together(6, func(i int) {
		for round := range rounds {
			var batch []wallet.Command
			for n := range count {
				key, next := fmt.Sprint(round, "/", n), ids[(n+1)%count]
				batch = append(batch, keyed(key, wallet.Action{Kind: wallet.KindTransfer, Wallet: ids[n], To: next, Movement: amount(1)}),
					command(wallet.Action{Kind: wallet.KindTransfer, Wallet: next, To: ids[n], Movement: amount(1)}),
					command(wallet.Action{Owner: wallet.Owner{ID: key, Currency: "JPY"}}))
			}
			if i%2 == 1 {
				slices.Reverse(batch)
			}
			if _, err := at.Do(t.Context(), batch); err != nil {
				t.Errorf("batch %d: %v", i, err)
				return
			}
		}
	})
	var total, opened int64
	if err := db.QueryRow(t.Context(), `SELECT sum(balance), count(*) FROM wallets`).Scan(&total, &opened); err != nil || total != 100*count || opened != count+count*rounds {
		t.Errorf("%d in %d wallets, %v", total, opened, err)
	}
	if lost := at.Lost(); lost != 0 {
		t.Errorf("%d races lost", lost)
	}
	fixture.Sound(t, db)
}

func TestAReferenceIsUsedOnceAmongTheWalletsOfAClient(t *testing.T) {
	db, at := executing(t)
	batch := func() (commands []wallet.Command) { // in a wallet of its own: only the unique index is between two batches
		id := made(t, at, 0)
		for _, reference := range []string{"x", "y", "y", ""} {
			commands = append(commands, command(wallet.Action{Kind: wallet.KindCredit, Wallet: id, Movement: wallet.Movement{Amount: 1, Reference: wallet.Reference{Text: reference}}}))
		}
		return commands
	}
	var used atomic.Int64
	together(8, func(i int) {
		commands := batch()
		slices.Reverse(commands[:i%2*2]) // the batch that loses is tried again and finds them used
		done, err := at.Do(t.Context(), commands)
		if err != nil || codeOf(done[2]) != fault.StateConflict || codeOf(done[3]) != "" {
			t.Errorf("batch %d: %+v, %v", i, done, err)
			return
		}
		for _, d := range done[:2] {
			if codeOf(d) == "" {
				used.Add(1)
			}
		}
	})
	kiosk := read[walletDocument](t, one(t, at, wallet.Action{Owner: wallet.Owner{Client: "kiosk", ID: "mina", Currency: "JPY"}})).ID
	again, others, by := batch()[0], batch()[0], batch()[0]
	again.Request.Client, others.Request.Client, by.Request.Client = "ops", "ops", "shop" // an operator; the app itself
	others.Action.Wallet, by.Who = kiosk, access.OfClient("shop")
	done := do(t, at, again, others, by)
	if codeOf(done[0]) != fault.StateConflict || codeOf(done[1]) != "" || codeOf(done[2]) != fault.StateConflict || used.Load() != 2 {
		t.Errorf("two references were used %d times; then by an operator, for another client, by the app: %q, %q, %q", used.Load(), codeOf(done[0]), codeOf(done[1]), codeOf(done[2]))
	}
	fixture.Sound(t, db)
}

// A writer that changes a wallet without its lock makes a batch lose the race: the batch is tried again. After
// another error it is not.
func TestALostRaceIsTriedAgainAndCounted(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := made(t, newExecutor(db), 100)
	const moves, fails = `UPDATE wallets SET version = version + 1 WHERE id = $1`, `SELECT 1 / (version - version) FROM wallets WHERE id = $1`
	for _, c := range []struct {
		sql   string
		times int
		want  fault.Code
		lost  int64
	}{{moves, 1, "", 1}, {moves, 2, "", 2}, {moves, 3, fault.Unavailable, 3}, {fails, 9, fault.InternalError, 0}} {
		at := newExecutor(&disturbed{Pool: db, times: c.times, sql: c.sql, id: id})
		done, err := at.Do(t.Context(), []wallet.Command{command(wallet.Action{Kind: wallet.KindDebit, Wallet: id, Movement: amount(1)})})
		if fault.CodeOf(err) != c.want || err == nil && codeOf(done[0]) != "" || at.Lost() != c.lost {
			t.Errorf("disturbed %d times: %+v, %v, %d counted", c.times, done, err, at.Lost())
		}
	}
	expect(t, db, id, 98, 0, 3)
	fixture.Sound(t, db)
}

// disturbed begins transactions of which the first few are disturbed: something
// changes, without the wallet's lock being asked for, between what a batch reads
// and what it writes.
type disturbed struct {
	*pgxpool.Pool
	times int
	sql   string
	id    uuid.UUID
}

// Begin implements postgres.Beginner.
func (d *disturbed) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := d.Pool.Begin(ctx)
	if d.times--; d.times < 0 {
		return tx, err
	}
	return &disturbedTx{Tx: tx, by: d}, err
}

// disturbedTx disturbs before its third batch, which writes; the first claims keys
// and the second reads.
type disturbedTx struct {
	pgx.Tx
	by      *disturbed
	batches int
}

// SendBatch implements pgx.Tx.
func (t *disturbedTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if t.batches++; t.batches == 3 {
		_, _ = t.Exec(ctx, t.by.sql, t.by.id)
	}
	return t.Tx.SendBatch(ctx, b)
}

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
	db, at := executing(t)
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
	lost := porcupine.Operation{Input: step{kind: "credit", amount: 5}, Output: outcome{purse: purse{5, 1}}, Return: 10}
	if porcupine.CheckOperations(spec, []porcupine.Operation{lost, lost}) { // the check's own control
		t.Error("two credits that both were the first are linearizable")
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
		if s.kind != "read" {
			batch = append(batch, command(wallet.Action{Kind: wallet.Kind(s.kind), Wallet: ids[s.from], To: ids[s.to], Movement: amount(s.amount)}))
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

func TestTheSweepGivesBackWhatIsOverAndPassesOverBusyWallets(t *testing.T) {
	db, at := executing(t)
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
		if _, err := wallet.Open(t.Context(), tx, wallet.ReadSet{Wallets: ids[:1]}, postgres.WaitForLocks); err != nil {
			return err
		}
		if n, err := wallet.Expire(t.Context(), db, nil, 100); err != nil || n.Authorizations != 6 || len(n.Visited) != 4 || n.PassedOver != 1 {
			t.Errorf("%+v expired, %v", n, err)
		}
		return nil
	})
	servers.NoError(t, err)
	expect(t, db, ids[0], 100, 50, 3)
	var expired atomic.Int64
	together(6, func(int) {
		done, err := wallet.Expire(t.Context(), db, nil, 100)
		if expired.Add(int64(done.Authorizations)); err != nil {
			t.Error(err)
		}
	})
	if n := expired.Load(); n != 2 {
		t.Errorf("many at once expired %d", n)
	}
	expect(t, db, ids[0], 100, 0, 5)
	expect(t, db, ids[4], 100, 50, 3)
	if n, err := wallet.Expire(t.Context(), db, nil, 100); err != nil || n.Authorizations != 0 {
		t.Errorf("%+v expired, %v", n, err)
	}
	fixture.Sound(t, db)
}
