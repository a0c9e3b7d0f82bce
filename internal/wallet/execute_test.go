package wallet_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/internal/wallet"
)

func TestEveryActionIsAnsweredWithItsDocument(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	at := newExecutor(db)
	d := one(t, at, wallet.Action{Owner: wallet.Owner{ID: "alice", Currency: "JPY"}, Movement: wallet.Movement{Amount: 1000, Description: "welcome"}})
	a := read[walletDocument](t, d)
	if a.OwnerID != "alice" || a.Currency != "JPY" || a.Balance != 1000 || a.Available != 1000 || a.Version != 1 {
		t.Errorf("open: %+v", a)
	}
	d = one(t, at, wallet.Action{Owner: wallet.Owner{ID: "bob", Currency: "JPY"}})
	b := read[walletDocument](t, d)
	if b.Balance != 0 || b.Version != 0 || b.ID == uuid.Nil {
		t.Errorf("open without a balance: %+v", b)
	}
	done := do(t, at, // in one transaction: each answer is of its moment
		command(wallet.Action{Kind: wallet.KindCredit, Wallet: a.ID, Movement: wallet.Movement{Amount: 500, Description: "top-up", Reference: wallet.Reference{Text: "r-1"}}}),
		command(wallet.Action{Kind: wallet.KindDebit, Wallet: a.ID, Movement: amount(200)}),
		command(wallet.Action{Kind: wallet.KindTransfer, Wallet: a.ID, To: b.ID, Movement: wallet.Movement{Amount: 300, Description: "thanks", Reference: wallet.Reference{Text: "r-2"}}}),
		command(wallet.Action{Kind: wallet.KindTransfer, Wallet: b.ID, To: a.ID, Movement: amount(100)}),
		command(wallet.Action{Kind: wallet.KindAuthorize, Wallet: a.ID, TTL: time.Hour, Movement: wallet.Movement{Amount: 600, Description: "a hotel"}}))
	if w := read[walletDocument](t, done[0]); w.Balance != 1500 || w.Version != 2 {
		t.Errorf("credit: %+v", w)
	}
	if w := read[walletDocument](t, done[1]); w.Balance != 1300 || w.Version != 3 {
		t.Errorf("debit: %+v", w)
	}
	if m := read[transferDocument](t, done[2]); m.From != a.ID || m.To != b.ID || m.Amount != 300 || m.Currency != "JPY" ||
		m.Description != "thanks" || m.Reference != "r-2" || m.ID == uuid.Nil || m.CreatedAt.IsZero() {
		t.Errorf("transfer: %+v", m)
	}
	if m := read[transferDocument](t, done[3]); m.Reference != m.ID.String() {
		t.Errorf("transfer without a reference: %+v", m)
	}
	h := read[authorizationDocument](t, done[4])
	if h.WalletID != a.ID || h.Amount != 600 || h.State != wallet.Active || h.Description != "a hotel" || h.ExpiresAt.Sub(h.CreatedAt) != time.Hour {
		t.Errorf("authorize: %+v", h)
	}
	expect(t, db, a.ID, 1100, 600, 6)
	d = one(t, at, wallet.Action{Kind: wallet.KindCapture, Wallet: a.ID, Authorization: h.ID, Movement: amount(250)})
	if c := read[authorizationDocument](t, d); c.Captured != 250 || c.State != wallet.Active {
		t.Errorf("capture: %+v", c)
	}
	d = one(t, at, wallet.Action{Kind: wallet.KindVoid, Wallet: a.ID, Authorization: h.ID})
	if c := read[authorizationDocument](t, d); c.Captured != 250 || c.State != wallet.Voided {
		t.Errorf("void: %+v", c)
	}
	expect(t, db, a.ID, 850, 0, 8)
	expect(t, db, b.ID, 200, 0, 2)
	fixture.Sound(t, db)
}

func TestAWalletThatIsThereAlreadyIsNamed(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	at := newExecutor(db)
	open := wallet.Action{Owner: wallet.Owner{ID: "alice", Currency: "JPY"}, Movement: wallet.Movement{Amount: 10}}
	done := do(t, at, keyed("first", open), keyed("second", open), keyed("first", open), keyed("euros", wallet.Action{Owner: wallet.Owner{ID: "alice", Currency: "EUR"}}))
	first := read[walletDocument](t, done[0])
	if !done[2].Replayed || read[walletDocument](t, done[2]) != first || read[walletDocument](t, done[3]).ID == first.ID {
		t.Errorf("done: %+v", done)
	}
	later := do(t, at, keyed("third", open), keyed("second", open))
	if !later[1].Replayed {
		t.Error("a refusal was not remembered")
	}
	later = append(later, done[1])
	for i, d := range later {
		if p := d.Job.Problem; p == nil || p.Code != fault.WalletExists || p.About.ID != first.ID.String() {
			t.Errorf("refusal %d: %+v, want one about %s", i, p, first.ID)
		}
	}
	expect(t, db, first.ID, 10, 0, 1)
	for _, bad := range []wallet.Action{{Owner: wallet.Owner{Currency: "JPY"}}, {Owner: wallet.Owner{ID: "b", Currency: "yen"}}, {Owner: wallet.Owner{ID: "b\x00", Currency: "JPY"}},
		{Owner: wallet.Owner{ID: "b", Currency: "JPY"}, Movement: amount(-1)}, {Owner: wallet.Owner{ID: "b", Currency: "JPY"}, Movement: amount(wallet.MaxAmount + 1)},
		{Owner: wallet.Owner{ID: "b", Currency: "JPY"}, Movement: wallet.Movement{Description: "\x00"}}} {
		if d := one(t, at, bad); codeOf(d) != fault.InvalidRequest {
			t.Errorf("%+v: %+v", bad, d)
		}
	}
	if found, err := wallet.OfOwner(t.Context(), db, access.Everything(), "b", "", uuid.Nil, 10); err != nil || len(found) != 0 {
		t.Errorf("a refused command made %v, %v", found, err)
	}
	fixture.Sound(t, db)
}

func TestACommandIsDoneOncePerKeyFromManyAtOnce(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	at := newExecutor(db)
	id := made(t, at, 0)
	action := wallet.Action{Kind: wallet.KindCredit, Wallet: id, Movement: amount(100)}
	results := make([]string, 16)
	together(len(results), func(i int) {
		done, err := at.Do(t.Context(), []wallet.Command{command(wallet.Action{Kind: wallet.KindCredit, Wallet: id, Movement: amount(1)}), keyed("k", action), keyed("k", action)})
		if err != nil {
			t.Error(err)
			return
		}
		results[i] = string(done[1].Job.Result)
		if string(done[2].Job.Result) != results[i] {
			t.Errorf("told %s and %s", results[i], done[2].Job.Result)
		}
	})
	for _, r := range results {
		if r != results[0] || r == "" {
			t.Errorf("told %q and %q", r, results[0])
		}
	}
	if d := do(t, at, keyed("k", wallet.Action{Kind: wallet.KindCredit, Wallet: id, Movement: amount(101)}))[0]; !d.Reused {
		t.Errorf("another body: %+v", d)
	}
	expect(t, db, id, 116, 0, 17)
	fixture.Sound(t, db)
}

func TestOneRefusalFailsAlone(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	at := newExecutor(db)
	a, b, nobody := made(t, at, 100), made(t, at, 0), uuid.New()
	broken := made(t, at, 5)
	servers.Exec(t, db, `UPDATE wallets SET balance = balance + 1 WHERE id = $1`, broken)
	nine := int64(9)
	commands := []struct {
		action wallet.Action
		want   fault.Code
	}{
		{wallet.Action{Kind: wallet.KindDebit, Wallet: a, Movement: amount(101)}, fault.InsufficientFunds},
		{wallet.Action{Kind: wallet.KindDebit, Wallet: a, Movement: amount(60)}, ""},
		{wallet.Action{Kind: wallet.KindTransfer, Wallet: a, To: b, Movement: amount(41)}, fault.InsufficientFunds},
		{wallet.Action{Kind: wallet.KindCredit, Wallet: nobody, Movement: amount(1)}, fault.NotFound},
		{wallet.Action{Kind: wallet.KindCredit, Wallet: a, Movement: wallet.Movement{Amount: 1, Description: "\x00"}}, fault.InvalidRequest},
		{wallet.Action{Kind: wallet.KindCredit, Wallet: broken, Movement: amount(1)}, fault.InternalError},
		{wallet.Action{Kind: wallet.KindDebit, Wallet: a, Movement: wallet.Movement{Amount: 1, IfVersion: &nine}}, fault.VersionMismatch},
		{wallet.Action{Kind: wallet.KindTransfer, Wallet: a, To: b, Movement: amount(40)}, ""},
	}
	var batch []wallet.Command
	for _, c := range commands {
		batch = append(batch, command(c.action))
	}
	for i, d := range do(t, at, batch...) {
		if codeOf(d) != commands[i].want {
			t.Errorf("command %d: %q, want %q", i, codeOf(d), commands[i].want)
		}
	}
	expect(t, db, a, 0, 0, 3)
	expect(t, db, b, 40, 0, 1)
	// A refusal for want of money is an answer: with the same key it stays one.
	if one(t, at, wallet.Action{Kind: wallet.KindCredit, Wallet: a, Movement: amount(500)}); codeOf(do(t, at, batch[0])[0]) != fault.InsufficientFunds {
		t.Error("the refusal was forgotten")
	}
	servers.Exec(t, db, `UPDATE wallets SET balance = balance - 1 WHERE id = $1`, broken)
	fixture.Sound(t, db)
}

// Another client's wallet does not exist, not even while it is locked: nobody is let wait for it.
func TestACommandFindsTheWalletsOfItsGrantOnly(t *testing.T) {
	t.Parallel()
	db := servers.DB(t)
	at := newExecutor(db)
	mine := read[walletDocument](t, one(t, at, wallet.Action{Owner: wallet.Owner{ID: "me", Currency: "JPY"}, Movement: wallet.Movement{Amount: 10}}))
	theirs := made(t, at, 10)
	ofKiosk := read[walletDocument](t, one(t, at, wallet.Action{Owner: wallet.Owner{Client: "kiosk", ID: "me", Currency: "JPY"}, Movement: wallet.Movement{Amount: 10}})).ID
	if ofKiosk == mine.ID {
		t.Fatal("two clients share a wallet")
	}
	locked, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = locked.Rollback(context.Background()) }()
	if _, err := locked.Exec(t.Context(), `SELECT FROM wallets WHERE id = $1 FOR UPDATE`, ofKiosk); err != nil {
		t.Fatal(err)
	}
	for _, action := range []wallet.Action{{Kind: wallet.KindCredit, Wallet: ofKiosk, Movement: amount(1)}, {Kind: wallet.KindDebit, Wallet: ofKiosk, Movement: amount(1)},
		{Kind: wallet.KindTransfer, Wallet: mine.ID, To: ofKiosk, Movement: amount(1)}, {Kind: wallet.KindTransfer, Wallet: ofKiosk, To: mine.ID, Movement: amount(1)},
		{Kind: wallet.KindAuthorize, Wallet: ofKiosk, TTL: time.Hour, Movement: amount(1)}, {Kind: wallet.KindCapture, Wallet: ofKiosk, Authorization: uuid.New()}, {Kind: wallet.KindVoid, Wallet: ofKiosk, Authorization: uuid.New()}} {
		restricted := command(action)
		restricted.Who = access.OfClient("shop")
		if d := do(t, at, restricted)[0]; codeOf(d) != fault.NotFound {
			t.Errorf("%T of another client's wallet: %q", action, codeOf(d))
		}
	}
	if err := locked.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(t, db, ofKiosk, 10, 0, 1)
	for _, c := range []struct {
		action wallet.Action
		want   fault.Code
	}{
		{wallet.Action{Kind: wallet.KindDebit, Wallet: theirs, Movement: amount(1)}, fault.NotFound},
		{wallet.Action{Kind: wallet.KindTransfer, Wallet: theirs, To: mine.ID, Movement: amount(1)}, fault.NotFound},
		{wallet.Action{Owner: wallet.Owner{ID: "them", Currency: "EUR"}}, fault.Forbidden},
		{wallet.Action{Kind: wallet.KindTransfer, Wallet: mine.ID, To: theirs, Movement: amount(1)}, fault.NotFound},
		{wallet.Action{Owner: wallet.Owner{ID: "me", Currency: "EUR"}}, ""},
	} {
		restricted := command(c.action)
		restricted.Who = access.OfUser("shop", "me")
		if d := do(t, at, restricted)[0]; codeOf(d) != c.want {
			t.Errorf("%T: %q, want %q", c.action, codeOf(d), c.want)
		}
	}
	if found, err := wallet.OfOwner(t.Context(), db, access.Everything(), "them", "", uuid.Nil, 10); err != nil || len(found) != 0 {
		t.Errorf("a forbidden command made %v, %v", found, err)
	}
	expect(t, db, theirs, 10, 0, 1)
}
