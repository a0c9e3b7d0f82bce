//go:build failpoint

package wallet_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/entry/upkeep"
	"triprize/internal/testkit/property"
	"triprize/internal/testkit/servers"
	"triprize/internal/wallet"
)

// Random batches of commands, among them ones that must be refused, batches whose
// process dies before the commit and that come again, batches that are sent twice,
// time that runs out, and sweeps. After each:
//
//   - every command is answered as a simple model in memory says it must be;
//   - every wallet has the balance, what is held, and the version of the model;
//   - a batch that comes again gets the same answers and changes nothing.
//
// At the end everything package audit checks holds.
func TestRandomCommandsDoWhatTheModelDoes(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	property.Check(t, func(rt *rapid.T) {
		w := newWorld(t, db)
		for range rapid.IntRange(2, 10).Draw(rt, "steps") {
			switch rapid.IntRange(0, 9).Draw(rt, "step") {
			case 0:
				w.lapse(rt)
			case 1:
				w.sweep()
			default:
				w.batch(rt)
			}
			w.check(rt)
		}
		violations, err := upkeep.Check(t.Context(), db, 3)
		if err != nil {
			rt.Fatal(err)
		}
		for _, v := range violations {
			rt.Errorf("broken: %s: %s", v.Invariant, v.Subject)
		}
	})
}

// world is three wallets, of which the last has another currency, and what they should have.
type world struct {
	t    *testing.T
	db   *pgxpool.Pool
	at   *wallet.Executor
	ids  []uuid.UUID
	want []*model
	auth []*authorization
	used map[string]bool // references
}

// model is a wallet in memory.
type model struct {
	currency      string
	balance, held money.Amount
	version       int64
}

type authorization struct {
	id               uuid.UUID
	of               int
	amount, captured money.Amount
	active, over     bool
}

func newWorld(t *testing.T, db *pgxpool.Pool) *world {
	w := &world{t: t, db: db, at: newExecutor(db), used: make(map[string]bool)}
	for i, currency := range []string{"JPY", "JPY", "EUR"} {
		d := one(t, w.at, wallet.Action{Owner: wallet.Owner{ID: uuid.NewString(), Currency: currency}, Movement: wallet.Movement{Amount: money.Amount(20 * i)}})
		w.ids = append(w.ids, read[walletDocument](t, d).ID)
		w.want = append(w.want, &model{currency: currency, balance: money.Amount(20 * i), version: int64(min(i, 1))})
	}
	return w
}

// planned is a command and what the model makes of it when its turn comes.
type planned struct {
	action wallet.Action
	on     int // the wallet
	apply  func() fault.Code
	hold   *authorization // that it makes
}

func (w *world) batch(rt *rapid.T) {
	var plan []planned
	var commands []wallet.Command
	for range rapid.IntRange(1, 6).Draw(rt, "batch") {
		p := w.plan(rt)
		plan, commands = append(plan, p), append(commands, command(p.action))
	}
	if rapid.IntRange(0, 4).Draw(rt, "dies") == 0 {
		if !dying(w.at, w.t, "wallets.written", w.ids[plan[0].on].String(), commands) {
			rt.Fatal("it did not die: the test does not test")
		}
		w.check(rt) // as if it had not come
	}
	done := do(w.t, w.at, commands...)
	for i, p := range plan {
		want := p.apply()
		if got := codeOf(done[i]); got != want {
			rt.Errorf("%T %+v: %q, want %q", p.action, p.action, got, want)
		}
		if p.hold != nil && want == "" {
			p.hold.id = read[authorizationDocument](w.t, done[i]).ID
			w.auth = append(w.auth, p.hold)
		}
	}
	w.check(rt)
	for i := range commands {
		commands[i].Request.ID = uuidv7.New() // as every request gets one
	}
	for i, again := range do(w.t, w.at, commands...) {
		before := done[i]
		if before.Err == nil && (!again.Replayed || string(again.Job.Result) != string(before.Job.Result)) || codeOf(again) != codeOf(before) {
			rt.Errorf("%T %+v: told %q, %s, and then %q, %s", plan[i].action, plan[i].action, codeOf(before), before.Job.Result, codeOf(again), again.Job.Result)
		}
	}
}

// plan draws a command. Amounts are small, so that money is often short.
func (w *world) plan(rt *rapid.T) planned {
	from, to := rapid.SampledFrom([]int{0, 0, 1, 1, 2}).Draw(rt, "from"), rapid.SampledFrom([]int{0, 1, 1, 0, 2}).Draw(rt, "to")
	d := amount(money.Amount(rapid.Int64Range(0, 40).Draw(rt, "amount")))
	if rapid.IntRange(0, 5).Draw(rt, "with a reference") == 0 {
		d.Reference.Text = fmt.Sprint(w.ids[0], rapid.IntRange(0, 3).Draw(rt, "reference"))
	}
	if rapid.IntRange(0, 5).Draw(rt, "on a version") == 0 {
		version := w.want[from].version + rapid.Int64Range(0, 1).Draw(rt, "version")
		d.IfVersion = &version
	}
	id := w.ids[from]
	switch rapid.IntRange(0, 8).Draw(rt, "action") {
	case 0, 1:
		return planned{action: wallet.Action{Kind: wallet.KindCredit, Wallet: id, Movement: d}, on: from, apply: func() fault.Code { return w.credit(from, d) }}
	case 2:
		return planned{action: wallet.Action{Kind: wallet.KindDebit, Wallet: id, Movement: d}, on: from, apply: func() fault.Code { return w.debit(from, d) }}
	case 3, 4:
		return planned{action: wallet.Action{Kind: wallet.KindTransfer, Wallet: id, To: w.ids[to], Movement: d}, on: from, apply: func() fault.Code { return w.transfer(from, to, d) }}
	case 5, 6:
		h := &authorization{of: from, amount: d.Amount, active: true}
		return planned{action: wallet.Action{Kind: wallet.KindAuthorize, Wallet: id, TTL: time.Hour, Movement: d}, on: from, hold: h, apply: func() fault.Code { return w.authorize(h, d) }}
	}
	h := &authorization{id: uuid.New(), of: -1}
	if len(w.auth) > 0 {
		h = rapid.SampledFrom(w.auth).Draw(rt, "authorization")
	}
	if rapid.Bool().Draw(rt, "void") {
		return planned{action: wallet.Action{Kind: wallet.KindVoid, Wallet: id, Authorization: h.id, Movement: d}, on: from, apply: func() fault.Code { return w.void(from, h, d) }}
	}
	return planned{action: wallet.Action{Kind: wallet.KindCapture, Wallet: id, Authorization: h.id, Movement: d}, on: from, apply: func() fault.Code { return w.capture(from, h, d) }}
}
