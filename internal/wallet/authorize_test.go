package wallet_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/internal/wallet"
)

func TestWhatIsHeldCannotBeSpent(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, other := withBalance(t, db, 100), withBalance(t, db, 0)
	authorized(t, db, id, 60)
	on(t, db, func(u *wallet.UnitOfWork) {
		for _, amount := range []money.Amount{41, 100} {
			refused(t, fault.InsufficientFunds)(u.Debit(id, wallet.Movement{Amount: amount}))
			refused(t, fault.InsufficientFunds)(u.Transfer(id, other, wallet.Movement{Amount: amount}))
			refused(t, fault.InsufficientFunds)(u.Authorize(id, wallet.Movement{Amount: amount}, time.Hour))
		}
		must(t)(u.Debit(id, wallet.Movement{Amount: 40}))
	}, id, other)
	expect(t, db, id, 60, 60, 3)
	fixture.Sound(t, db)
}

func TestACaptureTakesWhatIsHeldInParts(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := withBalance(t, db, 100)
	a := authorized(t, db, id, 60)
	want := wallet.Wanted{Wallets: []uuid.UUID{id}, Authorizations: []uuid.UUID{a.ID}}
	with(t, db, want, func(u *wallet.UnitOfWork) {
		got, err := u.Capture(id, a.ID, wallet.Movement{Amount: 10, Description: "the first parcel"})
		if err != nil || got.State != wallet.Active || got.Remaining() != 50 {
			t.Errorf("a part: %+v, %v", got, err)
		}
		_, err = u.Capture(id, a.ID, wallet.Movement{Amount: 51})
		refused(t, fault.StateConflict)(nil, err)
	})
	expect(t, db, id, 90, 50, 3)
	if events, err := wallet.History(t.Context(), db, id, wallet.Page{Limit: 1}); err != nil || events[0].Entry.Amount != 10 || events[0].Entry.Credit.Account != wallet.Funding {
		t.Errorf("%+v, %v", events, err)
	}
	with(t, db, want, func(u *wallet.UnitOfWork) {
		got, err := u.Capture(id, a.ID, wallet.Movement{})
		if err != nil || got.State != wallet.Captured || got.Captured != 60 || got.Remaining() != 0 {
			t.Errorf("the rest: %+v, %v", got, err)
		}
		_, err = u.Capture(id, a.ID, wallet.Movement{Amount: 1})
		refused(t, fault.StateConflict)(nil, err)
		_, err = u.Capture(id, a.ID, wallet.Movement{})
		refused(t, fault.StateConflict)(nil, err)
		refused(t, fault.StateConflict)(u.Void(id, a.ID, wallet.Movement{}))
	})
	expect(t, db, id, 40, 0, 4)
	got, err := wallet.GetAuthorization(t.Context(), db, id, a.ID)
	if err != nil || got.State != wallet.Captured || got.Captured != 60 {
		t.Errorf("it is %+v, %v", got, err)
	}
	_, err = wallet.GetAuthorization(t.Context(), db, uuid.New(), a.ID)
	refused(t, fault.NotFound)(nil, err)
	fixture.Sound(t, db)
}

func TestAVoidGivesBackTheRest(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id, other := withBalance(t, db, 100), withBalance(t, db, 100)
	a := authorized(t, db, id, 60)
	with(t, db, wallet.Wanted{Wallets: []uuid.UUID{id, other}, Authorizations: []uuid.UUID{a.ID}}, func(u *wallet.UnitOfWork) {
		refused(t, fault.NotFound)(u.Void(other, a.ID, wallet.Movement{})) // it is not that wallet's
		_, err := u.Capture(id, a.ID, wallet.Movement{Amount: 10})
		must(t)(nil, err)
		got, err := u.Void(id, a.ID, wallet.Movement{})
		if err != nil || got.State != wallet.Voided || got.Captured != 10 || got.Remaining() != 0 {
			t.Errorf("%+v, %v", got, err)
		}
	})
	expect(t, db, id, 90, 0, 4)
	fixture.Sound(t, db)
}

// One unit makes, captures and voids: nothing of it was ever active in a table.
func TestAnAuthorizationLivesAndEndsInOneBook(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := withBalance(t, db, 100)
	on(t, db, func(u *wallet.UnitOfWork) {
		for range 2 {
			a, err := u.Authorize(id, wallet.Movement{Amount: 30}, time.Hour)
			must(t)(nil, err)
			_, err = u.Capture(id, a.ID, wallet.Movement{Amount: 20})
			must(t)(nil, err)
			must(t)(u.Void(id, a.ID, wallet.Movement{}))
		}
	}, id)
	expect(t, db, id, 60, 0, 7)
	fixture.Sound(t, db)
}

func TestWhatIsOverIsGivenBackBeforeACommandIsRefused(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	commands := map[string]func(u *wallet.UnitOfWork, id, other uuid.UUID) error{
		"debit": func(u *wallet.UnitOfWork, id, _ uuid.UUID) error {
			_, err := u.Debit(id, wallet.Movement{Amount: 80})
			return err
		},
		"pay": func(u *wallet.UnitOfWork, id, _ uuid.UUID) error {
			_, err := u.Pay(id, wallet.Movement{Amount: 80, PurchaseID: uuid.New()})
			return err
		},
		"transfer": func(u *wallet.UnitOfWork, id, to uuid.UUID) error {
			_, err := u.Transfer(id, to, wallet.Movement{Amount: 80})
			return err
		},
		"authorize": func(u *wallet.UnitOfWork, id, _ uuid.UUID) error {
			_, err := u.Authorize(id, wallet.Movement{Amount: 80}, time.Hour)
			return err
		},
	}
	sound := db
	for name, command := range commands {
		if db = sound; name == "pay" { // a payment without its purchase is found by the audit
			db = servers.DB(t)
		}
		id, other := withBalance(t, db, 100), withBalance(t, db, 0)
		over, lasts := authorized(t, db, id, 50), authorized(t, db, id, 20)
		lapseOne(t, db, over.ID)
		expect(t, db, id, 100, 70, 3)
		on(t, db, func(u *wallet.UnitOfWork) {
			if err := command(u, id, other); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}, id, other)
		for authorization, want := range map[uuid.UUID]wallet.AuthorizationState{over.ID: wallet.Expired, lasts.ID: wallet.Active} {
			if got, err := wallet.GetAuthorization(t.Context(), db, id, authorization); err != nil || got.State != want {
				t.Errorf("%s: %+v, %v; want %s", name, got, err, want)
			}
		}
	}
	fixture.Sound(t, sound)
}

func TestWhatIsOverIsNotCapturedAndNotTidiedWithoutNeed(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := withBalance(t, db, 100)
	first, second := authorized(t, db, id, 30), authorized(t, db, id, 30)
	lapseOne(t, db, first.ID)
	lapseOne(t, db, second.ID)
	on(t, db, func(u *wallet.UnitOfWork) { must(t)(u.Debit(id, wallet.Movement{Amount: 40})) }, id) // it has that
	expect(t, db, id, 60, 60, 4)
	with(t, db, wallet.Wanted{Wallets: []uuid.UUID{id}, Authorizations: []uuid.UUID{first.ID}}, func(u *wallet.UnitOfWork) {
		_, err := u.Capture(id, first.ID, wallet.Movement{Amount: 1})
		refused(t, fault.StateConflict)(nil, err)
		refused(t, fault.StateConflict)(u.Void(id, first.ID, wallet.Movement{}))
	})
	expect(t, db, id, 60, 30, 5)
	found, err := wallet.FindDue(t.Context(), db, nil, 10)
	if err != nil || len(found) != 1 || found[0] != id {
		t.Errorf("due are %v, %v", found, err)
	}
	on(t, db, func(u *wallet.UnitOfWork) {
		for _, want := range []int{1, 0} {
			if n, err := u.ExpireDue(id); err != nil || n != want {
				t.Errorf("%d expired, %v; want %d", n, err, want)
			}
		}
	}, id)
	expect(t, db, id, 60, 0, 6)
	fixture.Sound(t, db)
}

func TestAWalletHasABoundedNumberOfActiveAuthorizations(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	id := withBalance(t, db, 1000)
	var a wallet.Authorization
	on(t, db, func(u *wallet.UnitOfWork) {
		for range wallet.MaxActive {
			var err error
			a, err = u.Authorize(id, wallet.Movement{Amount: 1}, time.Hour)
			must(t)(nil, err)
		}
		refused(t, fault.StateConflict)(u.Authorize(id, wallet.Movement{Amount: 1}, time.Hour))
	}, id)
	on(t, db, func(u *wallet.UnitOfWork) {
		refused(t, fault.StateConflict)(u.Authorize(id, wallet.Movement{Amount: 1}, time.Hour))
	}, id)
	lapseOne(t, db, a.ID)
	on(t, db, func(u *wallet.UnitOfWork) { must(t)(u.Authorize(id, wallet.Movement{Amount: 1}, time.Hour)) }, id)
	fixture.Sound(t, db)
}
