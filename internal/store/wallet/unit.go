package wallet

import (
	"cmp"
	"time"

	"github.com/google/uuid"

	"triprize/internal/domain/fault"
	"triprize/internal/domain/metadata"
	"triprize/internal/domain/money"
	"triprize/internal/domain/uuidv7"
)

// UnitOfWork is the state of one transaction: the wallets it has locked, and what
// commands have decided to do with them. Nothing is written before Write or Queue.
// A UnitOfWork is for one goroutine.
type UnitOfWork struct {
	now            time.Time // the database's, after the locks were granted
	accounts       map[uuid.UUID]*account
	authorizations map[uuid.UUID]*authorization
	references     map[Reference]uuid.UUID // taken: by which entry
	busy           []uuid.UUID
	folded         int64 // events that Open has added up

	entries []Entry
	events  []event
}

// account is a wallet after the commands so far.
type account struct {
	Wallet
	closed   error // why commands on it fail; nil: they may go on
	start    int64 // the version that was read
	snapshot int64 // the version of the last snapshot
	active   int   // authorizations
	due      []*authorization
}

// authorization is an authorization after the commands so far.
type authorization struct {
	Authorization
	fresh   bool         // made by this transaction
	was     money.Amount // captured when it was read
	changed bool
}

// event is one row of wallet_events.
type event struct {
	walletID     uuid.UUID
	version      int64
	entryID      uuid.UUID
	deltaBalance money.Amount
	deltaHeld    money.Amount
}

// Movement is what all commands on a wallet have in common.
type Movement struct {
	Amount      money.Amount // minor units
	Reference   Reference    // zero: the entry's own id; one that may have been used is to be in Wanted.References: Write fails with a used one
	Description string
	Metadata    metadata.Map
	PurchaseID  uuid.UUID // of Pay and Refund
	Actor       string    // who asks for it: role:client, and /user when one was signed in; empty: System
	IfVersion   *int64    // refuse unless the wallet has this version; of a transfer: the wallet that pays
}

// Busy returns the wallets that another transaction has locked.
func (u *UnitOfWork) Busy() []uuid.UUID { return u.busy }

// Wallet returns a wallet after the commands so far. Its errors are those that every
// command can return: not-found, ErrBusy, ErrBroken.
func (u *UnitOfWork) Wallet(id uuid.UUID) (Wallet, error) {
	a, err := u.account(id)
	if err != nil {
		return Wallet{}, err
	}
	return a.Wallet, nil
}

// Owner returns whose a wallet is, also of one that is busy or broken.
func (u *UnitOfWork) Owner(id uuid.UUID) (Owner, bool) {
	a := u.accounts[id]
	if a == nil {
		return Owner{}, false
	}
	return a.Owner, true
}

func (u *UnitOfWork) account(id uuid.UUID) (*account, error) {
	a := u.accounts[id]
	if a == nil {
		return nil, fault.New(fault.NotFound, "there is no wallet %s", id)
	}
	return a, a.closed
}

// Credit adds money from outside.
func (u *UnitOfWork) Credit(id uuid.UUID, m Movement) (Entry, error) {
	return u.give(KindCredit, Funding, id, m)
}

// Debit pays money out.
func (u *UnitOfWork) Debit(id uuid.UUID, m Movement) (Entry, error) {
	return u.take(KindDebit, Funding, id, m)
}

// Pay takes the price of a purchase.
func (u *UnitOfWork) Pay(id uuid.UUID, m Movement) (Entry, error) {
	return u.take(KindPurchase, Sales, id, m)
}

// Refund gives back the price of a purchase.
func (u *UnitOfWork) Refund(id uuid.UUID, m Movement) (Entry, error) {
	return u.give(KindRefund, Refunds, id, m)
}

func (u *UnitOfWork) give(kind Kind, from Account, id uuid.UUID, m Movement) (Entry, error) {
	a, err := u.account(id)
	if err != nil {
		return Entry{}, err
	}
	if err := u.admit(a, kind, m); err != nil {
		return Entry{}, err
	}
	if err := a.room(m.Amount); err != nil {
		return Entry{}, err
	}
	e := u.entry(kind, a.Currency, m)
	e.Debit.Account, e.Credit.Wallet = from, id
	u.post(e, leg{a, m.Amount, 0})
	return e, nil
}

func (u *UnitOfWork) take(kind Kind, to Account, id uuid.UUID, m Movement) (Entry, error) {
	a, err := u.account(id)
	if err != nil {
		return Entry{}, err
	}
	if err := u.admit(a, kind, m); err != nil {
		return Entry{}, err
	}
	if err := u.afford(a, m.Amount); err != nil {
		return Entry{}, err
	}
	e := u.entry(kind, a.Currency, m)
	e.Debit.Wallet, e.Credit.Account = id, to
	u.post(e, leg{a, -m.Amount, 0})
	return e, nil
}

// Transfer moves money from one wallet to another in the same currency.
func (u *UnitOfWork) Transfer(from, to uuid.UUID, m Movement) (Entry, error) {
	if from == to {
		return Entry{}, invalid("/to", "must be another wallet than the one that pays")
	}
	payer, err := u.account(from)
	if err != nil {
		return Entry{}, err
	}
	payee, err := u.account(to)
	if err != nil {
		return Entry{}, err
	}
	if payer.Currency != payee.Currency {
		return Entry{}, invalid("/to", "has "+payee.Currency+", and the wallet that pays has "+payer.Currency)
	}
	if err := u.admit(payer, KindTransfer, m); err != nil {
		return Entry{}, err
	}
	if err := payee.room(m.Amount); err != nil {
		return Entry{}, err
	}
	if err := u.afford(payer, m.Amount); err != nil {
		return Entry{}, err
	}
	e := u.entry(KindTransfer, payer.Currency, m)
	e.Debit.Wallet, e.Credit.Wallet = from, to
	u.post(e, leg{payer, -m.Amount, 0}, leg{payee, m.Amount, 0})
	return e, nil
}

// leg is what an entry does to one wallet.
type leg struct {
	*account
	deltaBalance, deltaHeld money.Amount
}

// entry makes an entry of a movement; the caller sets its sides.
func (u *UnitOfWork) entry(kind Kind, currency string, m Movement) Entry {
	e := Entry{ID: uuidv7.New(), Kind: kind, Amount: m.Amount, Currency: currency, Reference: m.Reference, Description: m.Description, CreatedAt: u.now, Metadata: m.Metadata,
		PurchaseID: m.PurchaseID, Actor: cmp.Or(m.Actor, System)}
	if e.Reference == (Reference{}) {
		e.Reference.Text = e.ID.String()
	}
	return e
}

// post adds an entry to the unit, with one event for each leg.
func (u *UnitOfWork) post(e Entry, legs ...leg) {
	u.references[e.Reference] = e.ID
	u.entries = append(u.entries, e)
	for _, l := range legs {
		l.Balance += l.deltaBalance
		l.Held += l.deltaHeld
		l.Version++
		u.events = append(u.events, event{walletID: l.ID, version: l.Version, entryID: e.ID,
			deltaBalance: l.deltaBalance, deltaHeld: l.deltaHeld})
	}
}
