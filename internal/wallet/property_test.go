//go:build failpoint

package wallet_test

import (
	"cmp"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"pgregory.net/rapid"

	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/domain/uuidv7"
	"triprize/internal/platform/failpoint"
	"triprize/internal/testkit/fixture"
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
		fixture.Sound(t, db)
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

// admit is what every movement must keep to.
func (w *world) admit(of int, d wallet.Movement, bounded bool) fault.Code {
	switch {
	case bounded && d.Amount < 1:
		return fault.InvalidRequest
	case d.IfVersion != nil && *d.IfVersion != w.want[of].version:
		return fault.VersionMismatch
	case w.used[d.Reference.Text]:
		return fault.StateConflict
	}
	return ""
}

// afford gives back what is over only when money is short.
func (w *world) afford(of int, amount money.Amount) fault.Code {
	m := w.want[of]
	if m.balance-m.held < amount {
		for _, h := range w.auth {
			if h.of == of {
				w.expire(h)
			}
		}
	}
	if m.balance-m.held < amount {
		return fault.InsufficientFunds
	}
	return ""
}

func (w *world) expire(h *authorization) {
	if h.active && h.over {
		w.move(h.of, 0, h.captured-h.amount, "")
		h.active = false
	}
}

func (w *world) move(of int, balance, held money.Amount, reference string) {
	m := w.want[of]
	m.balance, m.held, m.version = m.balance+balance, m.held+held, m.version+1
	if reference != "" {
		w.used[reference] = true
	}
}

func (w *world) credit(of int, d wallet.Movement) fault.Code {
	code := w.admit(of, d, true)
	if code == "" {
		w.move(of, d.Amount, 0, d.Reference.Text)
	}
	return code
}

// spend is what debits, transfers and authorizations have in common.
func (w *world) spend(of int, d wallet.Movement, do func()) fault.Code {
	code := w.admit(of, d, true)
	if code == "" {
		code = w.afford(of, d.Amount)
	}
	if code == "" {
		do()
	}
	return code
}

func (w *world) debit(of int, d wallet.Movement) fault.Code {
	return w.spend(of, d, func() { w.move(of, -d.Amount, 0, d.Reference.Text) })
}

func (w *world) transfer(from, to int, d wallet.Movement) fault.Code {
	if from == to || w.want[from].currency != w.want[to].currency {
		return fault.InvalidRequest
	}
	return w.spend(from, d, func() {
		w.move(from, -d.Amount, 0, d.Reference.Text)
		w.move(to, d.Amount, 0, d.Reference.Text)
	})
}

func (w *world) authorize(h *authorization, d wallet.Movement) fault.Code {
	return w.spend(h.of, d, func() { w.move(h.of, 0, d.Amount, d.Reference.Text) })
}

func (w *world) capture(of int, h *authorization, d wallet.Movement) fault.Code {
	if h.of != of {
		return fault.NotFound
	}
	d.Amount = cmp.Or(d.Amount, h.amount-h.captured)
	code := w.end(of, h, d, true)
	if code == "" && d.Amount > h.amount-h.captured {
		code = fault.StateConflict
	}
	if code == "" {
		w.move(of, -d.Amount, -d.Amount, d.Reference.Text)
		h.captured += d.Amount
		h.active = h.captured < h.amount
	}
	return code
}

func (w *world) void(of int, h *authorization, d wallet.Movement) fault.Code {
	if h.of != of {
		return fault.NotFound
	}
	code := w.end(of, h, d, false)
	if code == "" {
		w.move(of, 0, h.captured-h.amount, d.Reference.Text)
		h.active = false
	}
	return code
}

// end is what captures and voids have in common.
func (w *world) end(of int, h *authorization, d wallet.Movement, capture bool) fault.Code {
	if !capture || h.active {
		if code := w.admit(of, d, capture); code != "" {
			return code
		}
	}
	if w.expire(h); !h.active {
		return fault.StateConflict
	}
	return ""
}

// lapse lets the time of an authorization run out.
func (w *world) lapse(rt *rapid.T) {
	if len(w.auth) == 0 {
		return
	}
	if h := rapid.SampledFrom(w.auth).Draw(rt, "lapses"); h.active && !h.over {
		h.over = true
		lapse(w.t, w.db, h.id)
	}
}

func (w *world) sweep() {
	if _, err := wallet.Expire(w.t.Context(), w.db, nil, 1000); err != nil {
		w.t.Error(err)
	}
	for _, h := range w.auth {
		w.expire(h)
	}
}

func (w *world) check(rt *rapid.T) {
	for i, id := range w.ids {
		got, err := wallet.Get(w.t.Context(), w.db, access.Everything(), id)
		if err != nil {
			rt.Fatal(err)
		}
		if m := w.want[i]; got.Balance != m.balance || got.Held != m.held || got.Version != m.version {
			rt.Errorf("wallet %d has %d, %d held, version %d; the model %d, %d, %d", i, got.Balance, got.Held, got.Version, m.balance, m.held, m.version)
		}
	}
	for _, h := range w.auth {
		got, err := wallet.GetAuthorization(w.t.Context(), w.db, w.ids[h.of], h.id)
		if err != nil || got.Captured != h.captured || (got.State == wallet.Active) != h.active {
			rt.Errorf("an authorization is %+v, %v; the model %+v", got, err, h)
		}
	}
}

// errDies is how a process dies: nothing after it runs, and its transaction is gone.
var errDies = errors.New("the process dies")

// dying does commands in a process that dies at a failpoint that concerns about,
// if it comes there.
func dying(at *wallet.Executor, t *testing.T, point, about string, commands []wallet.Command) (died bool) {
	defer failpoint.Set(point, about, func() { panic(errDies) })()
	defer func() {
		if p := recover(); p != nil {
			if p != errDies { //nolint:errorlint // the very value
				panic(p)
			}
			died = true
		}
	}()
	if _, err := at.Do(t.Context(), commands); err != nil {
		t.Error(err)
	}
	return died
}

// Before its commit it leaves no half; after its commit its commands are answered when they are asked again.
func TestABatchOfAProcessThatDiesIsDoneOnce(t *testing.T) {
	t.Parallel()
	for point, committed := range map[string]bool{"wallets.written": false, "wallets.committed": true} {
		db := servers.DB(t)
		at := newExecutor(db)
		a, b := made(t, at, 100), made(t, at, 0)
		batch := []wallet.Command{
			keyed("1", wallet.Action{Kind: wallet.KindTransfer, Wallet: a, To: b, Movement: amount(30)}),
			keyed("2", wallet.Action{Kind: wallet.KindAuthorize, Wallet: a, TTL: time.Hour, Movement: amount(10)}),
			keyed("3", wallet.Action{Owner: wallet.Owner{ID: "new", Currency: "JPY"}, Movement: wallet.Movement{Amount: 5}}),
			keyed("4", wallet.Action{Kind: wallet.KindDebit, Wallet: a, Movement: amount(1000)}),
			keyed("5", wallet.Action{Kind: wallet.KindDebit, Wallet: a, Movement: amount(1)}),
		}
		changed := fixture.Watch(t, db)
		if !dying(at, t, point, a.String(), batch) {
			t.Fatal("it did not die: the test does not test")
		}
		if !committed {
			changed("")
		}
		for round := range 2 {
			for i := range batch {
				batch[i].Request.ID = uuidv7.New() // as every request gets one
			}
			done := do(t, at, batch...)
			for i, d := range done {
				if d.Replayed != (committed || round == 1) || d.Err != nil || (d.Job.Problem != nil) != (i == 3) {
					t.Errorf("%s: command %d, asked again: %+v", point, i, d)
				}
			}
			if w := read[walletDocument](t, done[4]); w.Balance != 69 || w.Held != 10 || w.Version != 4 {
				t.Errorf("%s: it is answered with %+v", point, w)
			}
			expect(t, db, a, 69, 10, 4)
		}
		fixture.Sound(t, db)
	}
}
