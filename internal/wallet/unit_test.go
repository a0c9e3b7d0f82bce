package wallet_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/platform/postgres"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/internal/wallet"
)

func TestARefusedCommandLeavesNothing(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	a, full := withBalance(t, db, 100), withBalance(t, db, 0)
	euros := read[walletDocument](t, one(t, newExecutor(db), wallet.Action{Owner: wallet.Owner{ID: "e", Currency: "EUR"}, Movement: amount(5)})).ID
	for range wallet.MaxBalance / wallet.MaxAmount / 1000 { // 9 · 10¹⁵ in purchases' refunds
		on(t, db, func(u *wallet.UnitOfWork) {
			must(t)(u.Refund(full, wallet.Movement{Amount: 1000 * wallet.MaxAmount, PurchaseID: uuid.New()}))
		}, full)
	}
	seven := int64(7)
	nobody := uuid.New()
	with(t, db, wallet.ReadSet{Wallets: []uuid.UUID{a, euros, full}, References: []wallet.Reference{{Scope: "shop", Text: "r"}}}, func(u *wallet.UnitOfWork) {
		invalid, missing := refused(t, fault.InvalidRequest), refused(t, fault.NotFound)
		for _, amount := range []money.Amount{0, -1, wallet.MaxAmount + 1, -1 << 63, 1<<63 - 1} {
			m := wallet.Movement{Amount: amount}
			invalid(u.Credit(a, m))
			invalid(u.Debit(a, m))
			invalid(u.Transfer(a, full, m))
			invalid(u.Authorize(a, m, wallet.MinTTL))
		}
		one := wallet.Movement{Amount: 1}
		for _, m := range []wallet.Movement{{Amount: 1, Description: "a\x00b"}, {Amount: 1, Description: "\xff"}, {Amount: 1, Description: strings.Repeat("é", 501)},
			{Amount: 1, Reference: wallet.Reference{Text: strings.Repeat("r", 181)}}, {Amount: 1, Reference: wallet.Reference{Text: "\x00"}}} {
			invalid(u.Credit(a, m))
			invalid(u.Transfer(a, full, m))
		}
		invalid(u.Transfer(a, a, one))
		invalid(u.Transfer(a, euros, one))
		invalid(u.Transfer(a, full, one)) // it has all a wallet may have
		invalid(u.Credit(full, one))
		invalid(u.Authorize(a, one, 0))
		invalid(u.Authorize(a, one, wallet.MaxTTL+1))
		missing(u.Credit(nobody, one))
		missing(u.Transfer(a, nobody, one))
		missing(u.Transfer(nobody, a, one))
		missing(u.Void(a, nobody, wallet.Movement{}))
		refused(t, fault.VersionMismatch)(u.Credit(a, wallet.Movement{Amount: 1, IfVersion: &seven}))
		must(t)(u.Credit(a, wallet.Movement{Amount: 1, Reference: wallet.Reference{Scope: "shop", Text: "r"}}))
		refused(t, fault.StateConflict)(u.Credit(a, wallet.Movement{Amount: 1, Reference: wallet.Reference{Scope: "shop", Text: "r"}}))
	})
	with(t, db, wallet.ReadSet{Wallets: []uuid.UUID{a}, References: []wallet.Reference{{Scope: "shop", Text: "r"}}}, func(u *wallet.UnitOfWork) {
		refused(t, fault.StateConflict)(u.Credit(a, wallet.Movement{Amount: 1, Reference: wallet.Reference{Scope: "shop", Text: "r"}}))
		must(t)(u.Credit(a, wallet.Movement{Amount: 1, Reference: wallet.Reference{Scope: "another shop", Text: "r"}}))
	})
	expect(t, db, a, 102, 0, 3)
	soundButForPurchases(t, db)
}

// A transaction that waited for a lock decides on what the holder left.
func TestAWalletIsReadAfterTheWaitForItsLock(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := withBalance(t, db, 100)
	var wg sync.WaitGroup
	won := make(chan bool, 4)
	on(t, db, func(u *wallet.UnitOfWork) {
		for range cap(won) {
			wg.Go(func() {
				err := try(t, db, wallet.ReadSet{Wallets: []uuid.UUID{id}}, func(u *wallet.UnitOfWork) {
					_, err := u.Debit(id, wallet.Movement{Amount: 60})
					won <- err == nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		servers.AwaitBlocked(t, db, cap(won))
		must(t)(u.Debit(id, wallet.Movement{Amount: 40}))
	}, id)
	wg.Wait()
	close(won)
	winners := 0
	for w := range won {
		if w {
			winners++
		}
	}
	if winners != 1 {
		t.Errorf("%d debits of all that was left won", winners)
	}
	expect(t, db, id, 0, 0, 3)
	fixture.Sound(t, db)
}

func TestAnOwnerHasOneWalletInACurrency(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	var owners []wallet.Owner
	var openings []wallet.NewWallet
	for i := range 6 {
		owners = append(owners, wallet.Owner{Client: "shop", ID: fmt.Sprint("owner-", i/2), Currency: []string{"JPY", "EUR"}[i%2]})
		openings = append(openings, wallet.NewWallet{Owner: owners[i]})
	}
	ids := make(map[wallet.Owner]uuid.UUID)
	for _, mine := range [][]wallet.NewWallet{openings[:4], openings, openings} {
		known := len(ids)
		err := postgres.InTx(t.Context(), db, func(tx pgx.Tx) error {
			created, err := wallet.Create(t.Context(), tx, mine)
			fresh := 0
			for o, c := range created {
				if before, ok := ids[o]; ok && before != c.ID || c.ID == uuid.Nil || c.Fresh == ok {
					t.Errorf("%v has %s and %+v", o, before, c)
				}
				if ids[o] = c.ID; c.Fresh {
					fresh++
				}
			}
			if len(created) != len(mine) || fresh != len(mine)-known {
				t.Errorf("%d of %d are new", fresh, len(created))
			}
			return err
		})
		servers.NoError(t, err)
	}
	found, err := wallet.Find(t.Context(), db, append(owners[:3:3], wallet.Owner{Client: "kiosk", ID: "owner-1", Currency: "JPY"}))
	if err != nil || len(found) != 3 || found[owners[2]] != ids[owners[2]] {
		t.Errorf("found %v, %v", found, err)
	}
	of, err := wallet.OfOwner(t.Context(), db, access.OfClient("shop"), "owner-1", "", uuid.Nil, 10)
	if err != nil || len(of) != 2 || of[0].Currency != "EUR" {
		t.Errorf("of an owner: %+v, %v", of, err)
	}
	if of, err = wallet.OfOwner(t.Context(), db, access.Everything(), "owner-1", "JPY", uuid.Nil, 10); err != nil || len(of) != 1 || of[0].ID != ids[owners[2]] {
		t.Errorf("in a currency: %+v, %v", of, err)
	}
}
