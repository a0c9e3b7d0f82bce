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
	other := credit(1, "a")
	other.Request.Client = "another shop"
	for i, d := range do(t, at, credit(0, "a"), credit(1, "a"), other) {
		if want := []fault.Code{"", fault.StateConflict, ""}[i]; codeOf(d) != want {
			t.Errorf("command %d: %q", i, codeOf(d))
		}
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
