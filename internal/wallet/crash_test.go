//go:build failpoint

package wallet_test

import (
	"errors"
	"testing"
	"time"

	"triprize/internal/job"
	"triprize/internal/platform/failpoint"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/internal/wallet"
)

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

func TestACrashBeforeTheCommitLeavesNoHalf(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	at := newExecutor(db)
	a, b := made(t, at, 100), made(t, at, 0)
	batch := []wallet.Command{
		keyed("1", wallet.Action{Kind: wallet.KindTransfer, Wallet: a, To: b, Movement: amount(30)}),
		keyed("2", wallet.Action{Kind: wallet.KindAuthorize, Wallet: a, TTL: time.Hour, Movement: amount(10)}),
		keyed("3", wallet.Action{Owner: wallet.Owner{ID: "new", Currency: "JPY"}, Movement: wallet.Movement{Amount: 5}}),
		keyed("4", wallet.Action{Kind: wallet.KindDebit, Wallet: a, Movement: amount(1000)}),
	}
	changed := fixture.Watch(t, db)
	if !dying(at, t, "wallets.written", a.String(), batch) {
		t.Fatal("it did not die: the test does not test")
	}
	changed("")
	for i, d := range do(t, at, batch...) {
		if d.Replayed || d.Err != nil {
			t.Errorf("command %d after the crash: %+v", i, d)
		}
	}
	expect(t, db, a, 70, 10, 3)
	fixture.Sound(t, db)
}

func TestACrashAfterTheCommitIsAnsweredWhenAskedAgain(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	at := newExecutor(db)
	id := made(t, at, 100)
	batch := []wallet.Command{keyed("k", wallet.Action{Kind: wallet.KindDebit, Wallet: id, Movement: amount(30)})}
	if !dying(at, t, "wallets.committed", id.String(), batch) {
		t.Fatal("it did not die: the test does not test")
	}
	expect(t, db, id, 70, 0, 2)
	var done job.Done
	for range 2 {
		done = do(t, at, keyed("k", wallet.Action{Kind: wallet.KindDebit, Wallet: id, Movement: amount(30)}))[0]
		if w := read[walletDocument](t, done); !done.Replayed || w.Balance != 70 || w.Version != 2 {
			t.Errorf("asked again: %+v, %+v", done, w)
		}
	}
	expect(t, db, id, 70, 0, 2)
	fixture.Sound(t, db)
}
