package wallet_test

import (
	"testing"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/internal/wallet"
)

func TestSnapshotsBoundWhatACommandReads(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := withBalance(t, db, 0)
	events := int64(0)
	const every = wallet.SnapshotEvery
	for _, n := range []int{1, every - 2, 1, 1, 5 * every / 2, every - 1, 0, 1, 1} { // up to a snapshot and beyond, one by one and in a batch
		on(t, db, func(u *wallet.UnitOfWork) {
			if folded := u.Summed(); folded >= every || folded > events {
				t.Errorf("after %d events it adds up %d", events, folded)
			}
			for range n {
				must(t)(u.Credit(id, wallet.Movement{Amount: 3}))
			}
		}, id)
		events += int64(n)
	}
	expect(t, db, id, money.Amount(3*events), 0, events)
	var snapshots []int64
	if err := db.QueryRow(t.Context(), `SELECT array_agg(version ORDER BY version) FROM wallet_snapshots`).Scan(&snapshots); err != nil || len(snapshots) != 3 {
		t.Errorf("snapshots at %v, %v", snapshots, err)
	}
	for version := range events + 1 {
		if got, err := wallet.At(t.Context(), db, id, version); err != nil || got.Balance != money.Amount(3*version) || got.Held != 0 {
			t.Errorf("at version %d: %+v, %v", version, got, err)
		}
	}
	for _, version := range []int64{-1, events + 1} {
		_, err := wallet.At(t.Context(), db, id, version)
		refused(t, fault.NotFound)(nil, err)
	}
	_, err := wallet.At(t.Context(), db, uuid.New(), 0)
	refused(t, fault.NotFound)(nil, err)
	fixture.Sound(t, db)
}

func TestHistoryIsPagedInBothDirections(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, other := withBalance(t, db, 100), withBalance(t, db, 0)
	a := authorized(t, db, id, 60)
	reference := wallet.Reference{Scope: "shop", Text: "order-7"}
	with(t, db, wallet.Wanted{Wallets: []uuid.UUID{id, other}, Authorizations: []uuid.UUID{a.ID}, References: []wallet.Reference{reference}}, func(u *wallet.UnitOfWork) {
		_, err := u.Capture(id, a.ID, wallet.Movement{Amount: 10})
		must(t)(nil, err)
		must(t)(u.Transfer(id, other, wallet.Movement{Amount: 5, Reference: reference, Description: "a gift"}))
		must(t)(u.Void(id, a.ID, wallet.Movement{}))
	})
	want := []struct {
		kind          wallet.Kind
		balance, held money.Amount
	}{{wallet.KindCredit, 100, 0}, {wallet.KindAuthorize, 100, 60}, {wallet.KindCapture, 90, 50}, {wallet.KindTransfer, 85, 50}, {wallet.KindVoid, 85, 0}}
	for _, upward := range []bool{true, false} {
		var seen []wallet.Event
		for page := (wallet.Page{Upward: upward, Limit: 2}); ; {
			events, err := wallet.History(t.Context(), db, id, page)
			if err != nil {
				t.Fatal(err)
			}
			if len(events) == 0 {
				break
			}
			seen = append(seen, events...)
			if page.From = events[len(events)-1].Version + 1; !upward {
				if page.From -= 2; page.From == 0 {
					break
				}
			}
		}
		if len(seen) != len(want) {
			t.Fatalf("upward %v: %d events", upward, len(seen))
		}
		for i, v := range seen {
			version := i + 1
			if !upward {
				version = len(want) - i
			}
			if w := want[version-1]; v.Version != int64(version) || v.Entry.Kind != w.kind || v.Balance != w.balance || v.Held != w.held || v.At.IsZero() {
				t.Errorf("upward %v: event %d is %+v, want %+v", upward, version, v, w)
			}
			if v.Version == 4 {
				if e := v.Entry; e.Debit.Wallet != id || e.Credit.Wallet != other || e.Amount != 5 || e.Reference != reference || e.Description != "a gift" || e.Currency != "JPY" {
					t.Errorf("the transfer: %+v", e)
				}
			}
		}
	}
	if events, err := wallet.History(t.Context(), db, uuid.New(), wallet.Page{Limit: 2}); err != nil || len(events) != 0 {
		t.Errorf("of no wallet: %v, %v", events, err)
	}
}
