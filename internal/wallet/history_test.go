package wallet_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/money"
	"triprize/internal/domain/uuidv7"
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
	for _, page := range []wallet.Page{{Upward: true, Limit: 200}, {Limit: 200}} {
		history, err := wallet.History(t.Context(), db, id, page)
		if err != nil || len(history) != int(events) {
			t.Fatalf("%d events, %v", len(history), err)
		}
		for _, v := range history {
			if v.Balance != money.Amount(3*v.Version) || v.Held != 0 {
				t.Errorf("at version %d: %d, %d held", v.Version, v.Balance, v.Held)
			}
		}
	}
	fixture.Sound(t, db)
}

func TestHistoryIsReadInBothDirectionsAndByPlaces(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	a, b := withBalance(t, db, 100), withBalance(t, db, 0)
	h := authorized(t, db, a, 60)
	with(t, db, wallet.ReadSet{Wallets: []uuid.UUID{a, b}, Authorizations: []uuid.UUID{h.ID}}, func(u *wallet.UnitOfWork) {
		_, err := u.Capture(a, h.ID, wallet.Movement{Amount: 10})
		must(t)(nil, err)
		must(t)(u.Transfer(a, b, wallet.Movement{Amount: 5, Reference: wallet.Reference{Scope: "shop", Text: "order-7"}, Description: "a gift"}))
		must(t)(u.Void(a, h.ID, wallet.Movement{}))
	})
	names := strings.NewReplacer(a.String(), "a", b.String(), "b", uuid.Nil.String(), "")
	places, want := []wallet.EventID{{Wallet: uuidv7.New(), Version: 1}, {Wallet: b, Version: 99}}, make(map[wallet.EventID]wallet.Event)
	read := func(page wallet.Page) (text string) {
		events, err := wallet.History(t.Context(), db, a, page)
		servers.NoError(t, err)
		for _, v := range events {
			e, at := v.Entry, wallet.EventID{Wallet: a, Version: v.Version}
			if places, want[at] = append(places, at), v; e.Reference.Scope == "" {
				e.Reference.Text = ""
			}
			text += fmt.Sprint(v.Version, " ", e.Kind, " ", e.Amount, e.Currency, " ", e.Debit.Wallet, e.Debit.Account, " → ", e.Credit.Wallet, e.Credit.Account,
				" ", e.Reference.Text, " ", e.Description, ": ", v.Balance, " held ", v.Held, "\n")
			if v.At.IsZero() {
				t.Errorf("%+v", v)
			}
		}
		return names.Replace(text)
	}
	lines := []string{
		"1 credit 100JPY funding → a  : 100 held 0\n",
		"2 authorize 60JPY a → funding  : 100 held 60\n",
		"3 capture 10JPY a → funding  : 90 held 50\n",
		"4 transfer 5JPY a → b order-7 a gift: 85 held 50\n",
		"5 void 50JPY a → funding  : 85 held 0\n",
	}
	for page, want := range map[wallet.Page]string{
		{Upward: true, Limit: 2}:          lines[0] + lines[1],
		{Upward: true, Limit: 9, From: 3}: lines[2] + lines[3] + lines[4],
		{Upward: true, Limit: 9, From: 6}: "",
		{Limit: 2}:                        lines[4] + lines[3],
		{Limit: 9, From: 3}:               lines[2] + lines[1] + lines[0],
	} {
		if got := read(page); got != want {
			t.Errorf("%+v:\n%s", page, got)
		}
	}
	if got, err := wallet.EventsAt(t.Context(), db, places); err != nil || len(want) != 5 || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	if all, err := wallet.GetAll(t.Context(), db, []uuid.UUID{a, b, uuidv7.New()}); err != nil || len(all) != 2 {
		t.Errorf("got %v, %v", all, err)
	}
	if events, err := wallet.History(t.Context(), db, uuid.New(), wallet.Page{Limit: 2}); err != nil || len(events) != 0 {
		t.Errorf("of no wallet: %v, %v", events, err)
	}
	_, err := wallet.GetAuthorization(t.Context(), db, b, h.ID)
	refused(t, fault.NotFound)(nil, err)
}
