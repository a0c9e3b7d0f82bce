package wallet_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/access"
	"triprize/internal/domain/fault"
	"triprize/internal/testkit/fixture"
	"triprize/internal/testkit/servers"
	"triprize/internal/wallet"
)

func TestAWalletThatIsThereAlreadyIsNamed(t *testing.T) {
	db, at := executing(t)
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

func TestOneRefusalFailsAlone(t *testing.T) {
	db, at := executing(t)
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
	db, at := executing(t)
	mine := read[walletDocument](t, one(t, at, wallet.Action{Owner: wallet.Owner{ID: "me", Currency: "JPY"}, Movement: wallet.Movement{Amount: 10}})).ID
	theirs := made(t, at, 10)
	kiosks := read[walletDocument](t, one(t, at, wallet.Action{Owner: wallet.Owner{Client: "kiosk", ID: "me", Currency: "JPY"}, Movement: wallet.Movement{Amount: 10}})).ID
	if kiosks == mine {
		t.Fatal("two clients share a wallet")
	}
	unlock := fixture.LockWallet(t, db, kiosks)
	shop, me, yen := access.OfClient("shop"), access.OfUser("shop", "me"), amount(1)
	for _, c := range []struct {
		who    access.Grant
		action wallet.Action
		want   fault.Code
	}{
		{shop, wallet.Action{Kind: wallet.KindCredit, Wallet: kiosks, Movement: yen}, fault.NotFound},
		{shop, wallet.Action{Kind: wallet.KindTransfer, Wallet: mine, To: kiosks, Movement: yen}, fault.NotFound},
		{shop, wallet.Action{Kind: wallet.KindTransfer, Wallet: kiosks, To: mine, Movement: yen}, fault.NotFound},
		{shop, wallet.Action{Kind: wallet.KindAuthorize, Wallet: kiosks, TTL: time.Hour, Movement: yen}, fault.NotFound},
		{shop, wallet.Action{Kind: wallet.KindVoid, Wallet: kiosks, Authorization: uuid.New()}, fault.NotFound},
		{me, wallet.Action{Kind: wallet.KindDebit, Wallet: theirs, Movement: yen}, fault.NotFound},
		{me, wallet.Action{Kind: wallet.KindTransfer, Wallet: mine, To: theirs, Movement: yen}, fault.NotFound},
		{me, wallet.Action{Owner: wallet.Owner{ID: "them", Currency: "EUR"}}, fault.Forbidden},
		{me, wallet.Action{Owner: wallet.Owner{ID: "me", Currency: "EUR"}}, ""},
	} {
		restricted := command(c.action)
		restricted.Who = c.who
		if d := do(t, at, restricted)[0]; codeOf(d) != c.want {
			t.Errorf("%+v: %q, want %q", c.action, codeOf(d), c.want)
		}
	}
	unlock()
	expect(t, db, kiosks, 10, 0, 1)
	expect(t, db, theirs, 10, 0, 1)
	if found, err := wallet.OfOwner(t.Context(), db, access.Everything(), "them", "", uuid.Nil, 10); err != nil || len(found) != 0 {
		t.Errorf("a forbidden command made %v, %v", found, err)
	}
}
