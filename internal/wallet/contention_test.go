package wallet_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/internal/wallet"
)

func TestOfTwoDebitsOfTheWholeBalanceOneWins(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	at := newExecutor(db)
	for range 10 {
		id := made(t, at, 100)
		codes := make([]fault.Code, 2)
		together(2, func(i int) {
			done, err := at.Do(t.Context(), []wallet.Command{command(wallet.Action{Kind: wallet.KindDebit, Wallet: id, Movement: amount(100)})})
			if err != nil {
				t.Error(err)
				return
			}
			codes[i] = codeOf(done[0])
		})
		if slices.Sort(codes); codes[0] != "" || codes[1] != fault.InsufficientFunds {
			t.Errorf("got %q", codes)
		}
		expect(t, db, id, 0, 0, 2)
	}
	fixture.Sound(t, db)
}

func TestParallelCreditsOnOneWalletAllCount(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	at := newExecutor(db)
	id := made(t, at, 0)
	together(8, func(i int) {
		for left := 70; left > 0; {
			batch := make([]wallet.Command, min(left, 1+i*9)) // batches of 1 to 64
			for c := range batch {
				batch[c] = command(wallet.Action{Kind: wallet.KindCredit, Wallet: id, Movement: amount(3)})
			}
			if _, err := at.Do(t.Context(), batch); err != nil {
				t.Error(err)
				return
			}
			left -= len(batch)
		}
	})
	expect(t, db, id, 3*8*70, 0, 8*70)
	if lost := at.Lost(); lost != 0 {
		t.Errorf("%d races lost under the row's lock", lost)
	}
	fixture.Sound(t, db)
}

func TestCrossingTransfersNeverDeadlock(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	at := newExecutor(db)
	a, b := made(t, at, 1000), made(t, at, 1000)
	together(12, func(i int) {
		for range 10 {
			action := wallet.Action{Kind: wallet.KindTransfer, Wallet: a, To: b, Movement: amount(1)}
			if i%2 == 1 {
				action.Wallet, action.To = b, a
			}
			if done, err := at.Do(t.Context(), []wallet.Command{command(action)}); err != nil || codeOf(done[0]) != "" {
				t.Errorf("%+v, %v", done, err)
				return
			}
		}
	})
	expect(t, db, a, 1000, 0, 121)
	expect(t, db, b, 1000, 0, 121)
	fixture.Sound(t, db)
}

// Batches over the same wallets, old and new, and the same keys, in opposite orders.
func TestOverlappingBatchesInOppositeOrderNeverDeadlock(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	at := newExecutor(db)
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

// A writer that changes a wallet without its lock makes a batch lose the race: the
// batch is tried again.
func TestALostRaceIsTriedAgainAndCounted(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := made(t, newExecutor(db), 100)
	for _, times := range []int{1, 2, 3} {
		d := &disturbed{Pool: db, times: times, sql: `UPDATE wallets SET version = version + 1 WHERE id = $1`, id: id}
		at := newExecutor(d)
		done, err := at.Do(t.Context(), []wallet.Command{command(wallet.Action{Kind: wallet.KindDebit, Wallet: id, Movement: amount(1)})})
		if times < 3 && (err != nil || codeOf(done[0]) != "") || times == 3 && fault.CodeOf(err) != fault.Unavailable {
			t.Errorf("disturbed %d times: %+v, %v", times, done, err)
		}
		if lost := at.Lost(); lost != int64(times) {
			t.Errorf("disturbed %d times, %d counted", times, lost)
		}
	}
	expect(t, db, id, 98, 0, 3)
	fixture.Sound(t, db)
}

func TestAnErrorThatIsNoLostRaceIsNotTriedAgain(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := made(t, newExecutor(db), 100)
	at := newExecutor(&disturbed{Pool: db, times: 9, sql: `SELECT 1 / (version - version) FROM wallets WHERE id = $1`, id: id})
	if _, err := at.Do(t.Context(), []wallet.Command{command(wallet.Action{Kind: wallet.KindDebit, Wallet: id, Movement: amount(1)})}); err == nil || at.Lost() != 0 {
		t.Errorf("%v, %+v", err, at.Lost())
	}
	expect(t, db, id, 100, 0, 1)
}

func TestAReferenceIsUsedOnceByItsClient(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	at := newExecutor(db)
	ids := make([]uuid.UUID, 8)
	for i := range ids {
		ids[i] = made(t, at, 0)
	}
	credit := func(i int, reference string) wallet.Command {
		return command(wallet.Action{Kind: wallet.KindCredit, Wallet: ids[i], Movement: wallet.Movement{Amount: 1, Reference: wallet.Reference{Text: reference}}})
	}
	done := do(t, at, credit(0, "a"), credit(1, "a"))
	if codeOf(done[0]) != "" || codeOf(done[1]) != fault.StateConflict {
		t.Errorf("in one batch: %+v", done)
	}
	if d := do(t, at, credit(1, "a"))[0]; codeOf(d) != fault.StateConflict {
		t.Errorf("later: %+v", d)
	}
	other := credit(1, "a")
	other.Request.Client = "another shop"
	if d := do(t, at, other)[0]; codeOf(d) != "" {
		t.Errorf("of another client: %+v", d)
	}
	// The same two references from batches that share no wallet: only the unique
	// index is between them. The batch that loses is tried again and finds them used.
	won := make([]int, len(ids))
	together(len(ids), func(i int) {
		first, second := "x", "y"
		if i%2 == 1 {
			first, second = second, first
		}
		done, err := at.Do(t.Context(), []wallet.Command{credit(i, first), credit(i, second), credit(i, "")})
		if err != nil {
			t.Errorf("batch %d: %v", i, err)
			return
		}
		for _, d := range done[:2] {
			if codeOf(d) == "" {
				won[i]++
			}
		}
		if codeOf(done[2]) != "" {
			t.Errorf("the third of batch %d: %+v", i, done[2])
		}
	})
	total := 0
	for _, n := range won {
		total += n
	}
	if total != 2 {
		t.Errorf("two references were used %d times", total)
	}
	fixture.Sound(t, db)
}
